export interface HealthCheckSettings { readonly path: string; readonly intervalMs: number; readonly timeoutMs: number; readonly expects: (status: number) => boolean }
export interface HealthCheck { stop(): void }
export function startHealthCheck(_options: { target: object; settings: HealthCheckSettings; clock: object; random: () => number; report: (failure: string | null) => void }): HealthCheck { return { stop() {} }; }
