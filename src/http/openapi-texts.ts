/** Words of the OpenAPI document that belong to no single route. */

export const API_DESCRIPTION = `Oncepay charges, captures, cancels and refunds through payment providers. It never charges twice and never loses a
charge, however often a request is repeated and whatever breaks off in between.

**How to call it safely.** Make one \`Idempotency-Key\` per intent, before the first sending, and keep it over every retry.
After a time-out, a 5xx or a lost connection: send the same request with the same key again. The first answer comes back,
byte for byte; nothing runs twice. A new key is for a new intent only.

**Try it out** below: authorize with the API key whose place the service printed at its start, then charge. Send the same
request again for its replay, change the amount for its conflict.

Every refusal is \`application/problem+json\` (RFC 9457) with a \`code\` from a closed list; its \`type\` is a page that tells
what the code means and what to do. Beside what each operation lists, any request can be answered 405 (another method than
the path has), 408 (it took too long to arrive), 431 (headers over 16 KB).

A decline is no error: it is 201 with \`status: "failed"\` and \`failure.code\`.`;

export const TAGS = [
  { name: 'Payments', description: 'Charge, authorize, capture, cancel; read what became of it.' },
  { name: 'Refunds', description: 'Give money back.' },
  { name: 'Idempotency', description: 'Where a key stands.' },
  { name: 'Orders', description: 'Orders with what was paid on them, from events.' },
  { name: 'Webhooks', description: 'What payment providers tell us. Signed by them, not called by clients.' },
  { name: 'Operations', description: 'For those who run the service.' },
  { name: 'Help', description: 'What a problem means.' },
] as const;
