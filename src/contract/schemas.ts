/** Every schema of the contract in one place, for OpenAPI and for tests. */
export * from './request-schemas.js';
export * from './response-schemas.js';
export * from './order-schemas.js';
export { PaymentListParameters } from './query.js';
