import type { CaptureMode } from './payment.js';

/** What a client sent, validated. `hash` is the command hash (canonical form, no HTTP in it). */
export interface ChargeCommand {
  readonly kind: 'charge';
  readonly hash: Buffer;
  readonly amount_minor: bigint;
  readonly currency: string;
  readonly customer_id: string;
  readonly external_payment_id: string;
  /** Always set: the deployment's default where the client named none (the hash covers only what was sent). */
  readonly provider: string;
  readonly payment_method: string | null;
  readonly capture: CaptureMode;
  readonly order_id: string | null;
  readonly description: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly return_url: string | null;
}

export interface CaptureCommand {
  readonly kind: 'capture';
  readonly hash: Buffer;
  readonly payment_id: string;
  /** Null: all that is authorized. */
  readonly amount_minor: bigint | null;
}

export interface CancelCommand {
  readonly kind: 'cancel';
  readonly hash: Buffer;
  readonly payment_id: string;
}

export interface RefundCommand {
  readonly kind: 'refund';
  readonly hash: Buffer;
  readonly payment_id: string;
  /** Null: what is left. */
  readonly amount_minor: bigint | null;
  readonly reason: string | null;
}

export type Command = ChargeCommand | CaptureCommand | CancelCommand | RefundCommand;
