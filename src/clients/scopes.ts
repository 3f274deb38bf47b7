/** What a client may do. `admin` reads every client's resources and writes only its own. */
export const SCOPES = ['payments:write', 'payments:read', 'commands', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

export function isScope(text: string): text is Scope {
  return (SCOPES as readonly string[]).includes(text);
}

/** Whether these scopes allow what asks for `needed`: having it, or for reading, `admin`. */
export function allows(scopes: readonly string[], needed: Scope): boolean {
  return scopes.includes(needed) || (needed === 'payments:read' && scopes.includes('admin'));
}
