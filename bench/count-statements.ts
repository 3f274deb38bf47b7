import type pg from 'pg';

/** Counting costs time, so it is off while rates are measured. */
export async function countStatements(admin: pg.Client, on: boolean): Promise<void> {
  await admin.query(`ALTER SYSTEM SET pg_stat_statements.track = ${on ? 'top' : 'none'}`);
  await admin.query('SELECT pg_reload_conf()');
}
