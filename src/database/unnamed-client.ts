import pg from 'pg';

type QueryMethod = (this: pg.Client, ...args: unknown[]) => unknown;
const query = Reflect.get(pg.Client.prototype, 'query') as QueryMethod;

/**
 * A client whose statements have no names, whoever gave them one, Prisma included. A name belongs to the session that
 * prepared it, and a pooler in transaction mode gives the next transaction another session.
 */
export class UnnamedClient extends pg.Client {}
UnnamedClient.prototype.query = function (this: pg.Client, ...[first, ...others]: unknown[]) {
  return query.call(this, withoutName(first), ...others);
} as QueryMethod as pg.Client['query'];

function withoutName(statement: unknown): unknown {
  const isNamed = typeof statement === 'object' && statement !== null && 'name' in statement;
  return isNamed ? { ...statement, name: undefined } : statement;
}
