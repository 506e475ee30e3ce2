/**
 * Reads where a service of Kong sends requests, and its time limits and retries.
 */
import { readDraftTarget, type DraftTarget } from "./draft.ts";
import type { SourceValue } from "./source_value.ts";

export function draftTargetOf(place: SourceValue): DraftTarget | string {
  const url = place.text("url");
  if (url !== undefined) return readDraftTarget(url);
  const protocol = place.text("protocol") ?? "http";
  const host = place.text("host");
  if (host === undefined) return 'it needs "url", or "host"';
  if (!/^(http|grpc|ws)s?$/.test(protocol)) return `the protocol "${protocol}" is not forwarded`;
  const wire = protocol.endsWith("s") ? "https" : "http";
  const path = place.text("path") ?? "";
  if (!/^(?:\/|$)/.test(path)) return `its path "${path}" has to begin with "/"`;
  const port = place.number("port") ?? (wire === "http" ? 80 : 443);
  return readDraftTarget(`${wire}://${host.includes(":") ? `[${host}]` : host}:${port}${path}`);
}

export function timeouts(place: SourceValue): object {
  const ms = (name: string) => clamped(place.number(name));
  const [connect, read, write] = [ms("connect_timeout"), ms("read_timeout"), ms("write_timeout")];
  const idle = read === undefined && write === undefined ? undefined : Math.max(read ?? 0, write ?? 0);
  const made = Object.fromEntries(
    Object.entries({ connect_ms: connect, response_ms: read, idle_ms: idle }).filter(
      ([, value]) => value !== undefined,
    ),
  );
  return Object.keys(made).length === 0 ? {} : { timeouts: made };
}

/** At most a day. */
function clamped(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.min(ms, 86_400_000);
}

export function retries(place: SourceValue): object {
  const attempts = place.number("retries") ?? 0;
  return attempts > 0 ? { retries: { attempts: Math.min(attempts, 10) } } : {};
}
