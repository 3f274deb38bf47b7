import type { Postgres } from './postgres.js';
import { cpuSeconds } from './process-stats.js';

interface Look {
  readonly service_cpu_s: number;
  readonly postgres_cpu_s: number;
  readonly wal_position: bigint;
  readonly statements: bigint;
}

/** What was used between two looks. */
export interface Used {
  readonly service_cpu_s: number;
  readonly postgres_cpu_s: number;
  readonly wal_bytes: number;
  /** 0 unless statements are counted (`countStatements`). */
  readonly statements: number;
}

const NOTHING: Used = { service_cpu_s: 0, postgres_cpu_s: 0, wal_bytes: 0, statements: 0 };

async function look(postgres: Postgres, service_pid: number | null): Promise<Look> {
  const cpu = {
    service_cpu_s: service_pid === null ? 0 : cpuSeconds(service_pid),
    postgres_cpu_s: cpuSeconds(postgres.pid),
  };
  const { rows } = await postgres.admin.query<{ wal_position: string; statements: string }>(
    `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::text AS wal_position,
            (SELECT coalesce(sum(calls), 0)::text FROM pg_stat_statements WHERE dbid <> (SELECT oid FROM pg_database WHERE datname = 'postgres'))
              AS statements`,
  );
  return { ...cpu, wal_position: BigInt(rows[0]?.wal_position ?? 0), statements: BigInt(rows[0]?.statements ?? 0) };
}

/** Two looks around a piece of work: `begin` and `end` take them, `used` is their difference. */
export class Meter {
  #before: Promise<Look> | null = null;
  #after: Promise<Look> | null = null;

  constructor(
    private readonly postgres: Postgres,
    private readonly service_pid: number | null,
  ) {}

  readonly begin = (): void => {
    this.#before = look(this.postgres, this.service_pid);
  };

  readonly end = (): void => {
    this.#after = look(this.postgres, this.service_pid);
  };

  async used(): Promise<Used> {
    const [before, after] = await Promise.all([this.#before, this.#after]);
    if (before === null || after === null) return NOTHING;
    return {
      service_cpu_s: after.service_cpu_s - before.service_cpu_s,
      postgres_cpu_s: after.postgres_cpu_s - before.postgres_cpu_s,
      wal_bytes: Number(after.wal_position - before.wal_position),
      statements: Number(after.statements - before.statements),
    };
  }
}
