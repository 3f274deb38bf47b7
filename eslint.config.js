import js from '@eslint/js';
import tseslint from 'typescript-eslint';

/** Banned by syntax, with the reason that the author then reads. */
const NO_SKIPPED_TESTS = {
  selector: 'MemberExpression[object.name=/^(it|test|describe)$/][property.name=/^(only|skip|todo)$/]',
  message:
    'No test is skipped, left for later or run alone. Where a machine lacks something: skipIf, with a line that says so.',
};
const ENVIRONMENT_IN_ONE_PLACE = {
  selector: "MemberExpression[object.name='process'][property.name='env']",
  message: 'The environment is parsed once, in src/config.ts. Take the value as a parameter.',
};
const ONLY_MAIN_EXITS = {
  selector: "CallExpression[callee.object.name='process'][callee.property.name='exit']",
  message: 'Only the start files (main.ts, *-main.ts) end the process: everything else throws or stops.',
};
const NO_TIMER_AS_PROOF = {
  selector: 'CallExpression[callee.name=/^(sleep|delay)$/]',
  message: 'A test waits for a condition, never for a time.',
};

export default tseslint.config(
  {
    ignores: ['dist/', 'coverage/', '.data/', '.cache/', 'src/database/generated/', 'bench/results/'],
  },
  {
    // A rule that has to be switched off in one place is a rule to change here, for all to see.
    linterOptions: { noInlineConfig: true, reportUnusedDisableDirectives: 'error' },
  },
  js.configs.recommended,
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      eqeqeq: 'error',
      'no-console': 'error',
      'no-param-reassign': 'error',
      'prefer-const': 'error',

      // What loses a promise loses an error, and here perhaps a payment.
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/return-await': ['error', 'in-try-catch'],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true, requireDefaultForNonUnion: false },
      ],
      '@typescript-eslint/ban-ts-comment': [
        'error',
        { 'ts-expect-error': true, 'ts-ignore': true, 'ts-nocheck': true, 'ts-check': false },
      ],
      '@typescript-eslint/consistent-type-imports': [
        'error',
        { fixStyle: 'inline-type-imports', disallowTypeAnnotations: false },
      ],
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],

      // Numbers and bigints in texts are no accident; objects and null are.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': [
        'error',
        { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true },
      ],
      // It asks for `!`, which is refused elsewhere: `as` says what is assumed.
      '@typescript-eslint/non-nullable-type-assertion-style': 'off',
      '@typescript-eslint/no-unnecessary-condition': [
        'error',
        { allowConstantLoopConditions: 'only-allowed-literals' },
      ],
      '@typescript-eslint/no-unused-expressions': ['error', { allowShortCircuit: false, allowTernary: false }],
      // Ports and Fastify plugins are async by contract, whether or not this one waits for anything.
      '@typescript-eslint/require-await': 'off',
      // `||` treats an empty environment variable or header as absent, which is at times what is meant.
      '@typescript-eslint/prefer-nullish-coalescing': 'off',
      // Closed unions of words are written as types; rows and ports as interfaces; both are used on purpose.
      '@typescript-eslint/consistent-type-definitions': 'off',
      '@typescript-eslint/no-empty-function': 'off',
    },
  },
  {
    files: ['src/**/*.ts'],
    rules: {
      'max-lines': ['error', { max: 300, skipBlankLines: true, skipComments: true }],
      'max-lines-per-function': ['error', { max: 80, skipBlankLines: true, skipComments: true }],
      'max-depth': ['error', 4],
      'max-params': ['error', 6],
      'no-restricted-syntax': ['error', ENVIRONMENT_IN_ONE_PLACE, ONLY_MAIN_EXITS],
    },
  },
  {
    // Start files and command lines: they read the environment, print, and end the process.
    files: ['src/config.ts', 'src/**/main.ts', 'src/main.ts', 'src/**/*-main.ts'],
    rules: { 'no-restricted-syntax': 'off', 'no-console': 'off' },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      'no-restricted-syntax': ['error', NO_SKIPPED_TESTS, NO_TIMER_AS_PROOF],
      'no-console': 'off',
      // A test that is wrong about a value fails at once and says where.
      '@typescript-eslint/no-non-null-assertion': 'off',
      // supertest and JSON.parse hand out `any`; the assertions that follow are the check.
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
  {
    files: ['bench/**/*.ts', 'scripts/**/*.ts'],
    rules: {
      'no-console': 'off',
      'max-lines': ['error', { max: 300, skipBlankLines: true, skipComments: true }],
      'max-lines-per-function': ['error', { max: 80, skipBlankLines: true, skipComments: true }],
    },
  },
  {
    files: ['**/*.{js,mjs,cjs}'],
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        Buffer: 'readonly',
        URL: 'readonly',
        fetch: 'readonly',
        setTimeout: 'readonly',
        clearTimeout: 'readonly',
        setInterval: 'readonly',
        clearInterval: 'readonly',
        AbortSignal: 'readonly',
        AbortController: 'readonly',
        TextDecoder: 'readonly',
        TextEncoder: 'readonly',
        performance: 'readonly',
        structuredClone: 'readonly',
      },
    },
  },
  {
    files: ['**/*.cjs'],
    languageOptions: {
      sourceType: 'commonjs',
      globals: { module: 'writable', require: 'readonly', __dirname: 'readonly' },
    },
  },
);
