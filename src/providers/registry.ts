import { createInstantProvider } from './instant.js';
import type { PaymentProvider } from './provider.js';
import { createSandboxProvider } from './sandbox/index.js';

/** The providers of this deployment, by name. */
export interface Providers {
  readonly names: readonly string[];
  /** What a charge that names none goes to. */
  readonly default_name: string;
  get(name: string): PaymentProvider | undefined;
}

/** What the registry reads of the configuration. */
export interface ProvidersConfig {
  /** The first is the default. */
  readonly providers: readonly string[];
  readonly stripe: {
    readonly secret_key: string | null;
    readonly api_base: string | null;
    readonly webhook_secrets: readonly string[];
  };
}

/** What is known only when the simulator runs. */
export interface ProvidersRuntime {
  /** Null only where `sandbox` is not configured. */
  readonly sandbox_url: string | null;
  readonly sandbox_webhook_secrets: readonly string[];
}

/**
 * Makes the adapters that are configured. Asynchronous, since an SDK is loaded only where it is used.
 * @throws Error for an unknown name, one that stands twice, or what an adapter can't work with
 */
export async function createProviders(config: ProvidersConfig, runtime: ProvidersRuntime): Promise<Providers> {
  const byName = new Map<string, PaymentProvider>();
  for (const name of config.providers) {
    if (byName.has(name)) throw new Error(`PROVIDERS has ${name} twice`);
    byName.set(name, await create(name, config, runtime));
  }
  const [default_name] = byName.keys();
  if (default_name === undefined) throw new Error('PROVIDERS is empty');
  return { names: [...byName.keys()], default_name, get: (name) => byName.get(name) };
}

async function create(name: string, config: ProvidersConfig, runtime: ProvidersRuntime): Promise<PaymentProvider> {
  switch (name) {
    case 'sandbox': {
      if (runtime.sandbox_url === null) throw new Error('the sandbox has no address');
      return createSandboxProvider({
        base_url: runtime.sandbox_url,
        webhook_secrets: runtime.sandbox_webhook_secrets,
      });
    }
    case 'instant':
      return createInstantProvider();
    case 'stripe': {
      const { secret_key, api_base, webhook_secrets } = config.stripe;
      if (secret_key === null) throw new Error('PROVIDERS has stripe, but STRIPE_SECRET_KEY is not set');
      const { createStripeProvider } = await import('./stripe/index.js');
      return createStripeProvider({ secret_key, api_base, webhook_secrets });
    }
    default:
      throw new Error(`PROVIDERS has ${name}, which is none: sandbox, stripe, instant`);
  }
}
