/** Where the service is killed: at a step of its own, or while the provider does what the behaviour says. */
export const STEPS = {
  'after the reservation': 'reserved',
  'after the operation row': 'begun',
  'before the provider commits': 'pm_slow_700',
  'after it commits, before it answers': 'pm_slow_answer_700',
  'after its answer, before settling': 'answered',
  'after settling, before our answer': 'settled',
} as const;
export type StepName = keyof typeof STEPS;
