/** Where HTTP looks for it. Events are read by the same rules, so it lies where both may import it. */
export { MAX_JSON_DEPTH, parseStrictJson } from '../contract/strict-json.js';
