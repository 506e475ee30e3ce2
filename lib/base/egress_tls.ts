/**
 * Connections over TLS for an `Egress`. By itself, because a program that makes none does without Node's TLS: 0.7 MiB.
 */
import tls, { type ConnectionOptions } from "node:tls";
import type { Secure } from "./egress.ts";

export function overTls(options: ConnectionOptions): Secure {
  return { ...options, open: (all) => tls.connect(all) };
}
