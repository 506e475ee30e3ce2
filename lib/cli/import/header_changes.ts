/**
 * Single changes of `request_headers` and `response_headers`, which are taken out of an imported plugin where the
 * gateway refuses them.
 */
import type { Path } from "../../config/json.ts";

interface ChangingPlugin {
  readonly name: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/** Whether it is in one change of headers: the others stay, such as a header that clients must not send. */
export function isHeaderChange({ name, config }: ChangingPlugin, { length }: Path): boolean {
  return config !== undefined && /^(request|response)_headers$/.test(name) && length === 3;
}

/** Takes out "set X-A" and "remove 0". False: nothing is left. */
export function cutHeaderChanges({ config }: ChangingPlugin, changes: ReadonlySet<string>): boolean {
  const record = config as Record<string, object>;
  for (const [action, all] of Object.entries(record)) {
    const kept = Object.entries(all).filter(([key]) => !changes.has(`${action} ${key}`));
    record[action] = Array.isArray(all) ? kept.map(([, name]) => name as unknown) : Object.fromEntries(kept);
    if (kept.length === 0) delete record[action];
  }
  return Object.keys(record).length > 0;
}
