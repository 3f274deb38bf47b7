/**
 * Who may import whom, types included (docs/architecture.md). Imports go one way:
 *
 *   main → app → http | jobs | kafka → payments → store | providers → contract → domain
 *
 * with `database` beneath `store`, and configuration, metrics and logger at the bottom. What a layer may import of
 * ours is listed here; everything that is not listed is refused.
 */
const BOTTOM = ['config', 'config-variables', 'metrics', 'logger'];
const MAY_IMPORT = {
  domain: [],
  contract: ['domain'],
  database: ['domain', ...BOTTOM],
  providers: ['contract', 'domain', ...BOTTOM],
  store: ['database', 'contract', 'domain', ...BOTTOM],
  wallet: ['store', 'database', 'contract', 'domain', ...BOTTOM],
  clients: ['store', 'database', 'contract', 'domain', ...BOTTOM],
  // The workers of one service and their parent; what they serve is none of its business.
  processes: ['domain', ...BOTTOM],
  payments: ['store', 'providers', 'database', 'contract', 'domain', ...BOTTOM],
  http: ['payments', 'clients', 'wallet', 'store', 'providers', 'database', 'contract', 'domain', ...BOTTOM],
  jobs: ['payments', 'clients', 'wallet', 'store', 'providers', 'database', 'contract', 'domain', ...BOTTOM],
  kafka: ['payments', 'clients', 'wallet', 'store', 'providers', 'database', 'contract', 'domain', ...BOTTOM],
  // The operators' command line.
  operations: ['payments', 'clients', 'store', 'providers', 'database', 'contract', 'domain', ...BOTTOM],
  simulator: [],
};

const layerPath = (names) => `^src/(${names.join('|')})(/|[.]ts$)`;

const layerRules = Object.entries(MAY_IMPORT).map(([layer, allowed]) => ({
  name: `layer-${layer}`,
  comment: `src/${layer} may import of ours only: itself${allowed.map((name) => `, ${name}`).join('')}.`,
  severity: 'error',
  from: { path: `^src/${layer}/` },
  to: { path: '^src/', pathNot: layerPath([layer, ...allowed]) },
}));

module.exports = {
  forbidden: [
    ...layerRules,
    {
      name: 'unknown-layer',
      comment: 'A new folder in src gets its place in MAY_IMPORT first.',
      severity: 'error',
      from: { path: '^src/[^/]+/', pathNot: layerPath(Object.keys(MAY_IMPORT)) },
      to: {},
    },
    {
      name: 'bottom',
      comment: 'config, metrics and logger know nothing of the rest but its words.',
      severity: 'error',
      from: { path: layerPath(BOTTOM) },
      to: { path: '^src/', pathNot: layerPath(['domain', ...BOTTOM]) },
    },
    {
      name: 'main-is-the-top',
      comment: 'Start files are started, never imported.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^src/(main|.*/main|.*-main)[.]ts$' },
    },
    {
      name: 'app-is-for-main',
      comment: 'Only start files (and tests) build the app.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(main|start|.*-main)[.]ts$' },
      to: { path: '^src/app[.]ts$' },
    },
    {
      name: 'no-circles',
      comment: 'Types included: what needs each other belongs together.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'no-orphans',
      comment: 'A file that nobody imports and that is started by nobody is dead.',
      severity: 'error',
      from: { orphan: true, path: '^src/', pathNot: '^src/(main|.*/main|.*-main)[.]ts$' },
      to: {},
    },
    {
      name: 'no-tests-in-src',
      comment: 'What is shipped does not need tests, benchmarks or scripts.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|bench|scripts)/' },
    },
    {
      name: 'no-dev-dependencies-in-src',
      comment: 'src runs where only `dependencies` are installed.',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-dev'], dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'no-unlisted-packages',
      comment: 'Every package that is imported stands in package.json.',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown', 'unknown', 'undetermined'] },
    },
    {
      name: 'unresolvable',
      comment: 'An import that leads nowhere.',
      severity: 'error',
      from: { path: '^src/' },
      to: { couldNotResolve: true },
    },
    {
      name: 'domain-is-pure',
      comment: 'The domain knows no framework, database, network, file or process.',
      severity: 'error',
      from: { path: '^src/domain/' },
      to: { dependencyTypes: ['npm', 'core'], pathNot: '^((node:)?crypto|node_modules/(canonicalize|uuidv7)/)' },
    },
    {
      name: 'http-framework-at-the-edge',
      comment: 'What the caller sees is described without Fastify; Kafka sends commands too.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(http/|app[.]ts|main[.]ts)' },
      to: { path: 'node_modules/(fastify|fastify-plugin|fastify-type-provider-zod|@fastify)/' },
    },
    {
      name: 'kafka-client-at-the-edge',
      comment: 'One folder talks to the broker.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/kafka/' },
      to: { path: 'node_modules/kafkajs/' },
    },
    {
      name: 'provider-packages-in-their-adapter',
      comment: 'A provider is one folder: nothing else knows its SDK.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/providers/stripe/' },
      to: { path: 'node_modules/stripe/' },
    },
  ],
  options: {
    // Without it, imports of types only are not seen, and circles among them neither.
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'types', 'node', 'default'] },
    doNotFollow: { path: ['node_modules', '^src/database/generated'] },
    exclude: { path: '^src/database/generated/(?!client)' },
  },
};
