/**
 * Opens the admin interface: checks its options and starts a server for its endpoints.
 */
import { passwordProblem } from "../base/password.ts";
import type { Reply } from "../http/reply.ts";
import { createOperatorServer, type OperatorServer, type OperatorTls } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import { Endpoints, type EndpointsOptions } from "./endpoints.ts";

export interface AdminOptions extends EndpointsOptions {
  /** PEM. Null: plain HTTP. */
  readonly tls: OperatorTls | null;
}

export interface Admin extends OperatorServer {
  /** Answers one request; for a management UI in the same process. Never rejects. */
  readonly answer: (inbound: Inbound) => Promise<Reply>;
}

/**
 * Throws for a password that nobody can log in with, or everybody, and for a certificate that does not match its key.
 */
export function createAdmin(options: AdminOptions): Admin {
  for (const password of [options.password ?? [], options.viewer?.password ?? []].flat()) {
    const wrong = passwordProblem(password);
    if (wrong !== null) throw new Error(`admin interface: ${wrong}`);
  }
  const { clock, log, tls } = options;
  const endpoints = new Endpoints(options);
  const answer = (inbound: Inbound) => endpoints.answer(inbound);
  const endStreams = () => endpoints.endStreams();
  return { ...createOperatorServer({ clock, log, tls, serve: answer, endStreams, maxBodyBytes: 0 }), answer };
}
