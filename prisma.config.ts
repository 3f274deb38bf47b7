import { defineConfig } from 'prisma/config';

// `prisma generate` asks for the schema engine, which it never runs and which is downloaded from outside
// the npm registry. Any executable satisfies it; `prisma migrate` still needs the real one (docs/adr).
process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath;

export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
});
