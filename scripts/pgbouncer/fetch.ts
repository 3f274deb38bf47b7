/**
 * For `npm run test:pgbouncer`: brings Debian's PgBouncer into .cache/pgbouncer, where it stays, unless one is installed.
 */
import { fetchPgBouncer, findPgBouncer } from './program.js';

if (findPgBouncer() === null) {
  try {
    fetchPgBouncer();
    console.log('pgbouncer: fetched');
  } catch (error) {
    console.error(`pgbouncer is not installed, and could not be fetched: ${String(error)}`);
    process.exitCode = 1;
  }
}
