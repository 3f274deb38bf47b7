/** A request that the provider refuses: `{error: {code, message}}` with this status. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** What else the answer says: the payment as it is, where its state is the reason. */
    readonly members: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
  }

  get body(): unknown {
    return { ...errorBody(this.code, this.message), ...this.members };
  }
}

export function errorBody(code: string, message: string): { error: { code: string; message: string } } {
  return { error: { code, message } };
}
