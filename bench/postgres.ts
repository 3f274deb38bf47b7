import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { freePort } from './service.js';

/** A PostgreSQL of the benchmark's own, durable as in production. Everything that is compared runs on it. */
export interface Postgres {
  readonly pid: number;
  readonly version: string;
  readonly admin: pg.Client;
  url(database: string): string;
  /** Made anew where it exists. */
  createDatabase(name: string): Promise<void>;
  /** Empties every table but those that say who may call. */
  truncate(database: string): Promise<void>;
  /** Runs SQL in one of the databases. */
  query(database: string, sql: string, values?: readonly unknown[]): Promise<pg.QueryResult<Record<string, unknown>>>;
  stop(): Promise<void>;
}

/** Durability is PostgreSQL's default (fsync, synchronous_commit, full_page_writes) and stays so. */
export const SETTINGS = {
  shared_buffers: '2GB',
  max_wal_size: '8GB',
  max_connections: '150',
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track': 'none',
  'pg_stat_statements.save': 'off',
} as const;

const KEPT_TABLES = ['_prisma_migrations', 'installation', 'api_client', 'api_key', 'client_audit'];
