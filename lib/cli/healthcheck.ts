/**
 * `edge-gateway healthcheck`: asks the gateway of this machine whether it is ready, for containers that have neither a
 * shell nor curl.
 */
import { systemClock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import { destinationOf } from "../base/url_destination.ts";
import { readHealthcheckSettings } from "../config/command_settings.ts";
import { HttpClient, type ClientFailure } from "../client/client.ts";
import type { RunCommand } from "./arguments.ts";
import { accepted, Failure } from "./failure.ts";

/** 0: ready, or with --live alive. 1: not, or no answer. */
export const healthcheck: RunCommand = async (given) => {
  const { live, ...shared } = given.flags;
  const { url } = accepted(readHealthcheckSettings(shared, process.env));
  const asked = `${url}${live === undefined ? "/readyz" : "/healthz"}`;
  const client = new HttpClient({
    clock: systemClock,
    egress: new Egress([destinationOf(new URL(asked), "admin")]),
    why: "admin",
  });
  try {
    const { status } = await client.ask({ url: new URL(asked), timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES });
    if (status !== 200)
      throw new Failure(
        `${asked} answered ${status}${status === 503 ? ": it is not ready" : ", which is no answer of a gateway"}`,
        1,
      );
    process.stdout.write(`${asked} answered 200\n`);
    return 0;
  } catch (error) {
    if (error instanceof Failure) throw error;
    const { kind, code, message } = error as ClientFailure;
    const unanswered = kind === "timeout" ? `it did not answer within ${TIMEOUT_MS / 1000} s` : message;
    throw new Failure(`cannot ask ${asked}: ${code === "ECONNREFUSED" ? "nothing listens there" : unanswered}`, 1);
  } finally {
    client.close();
  }
};

const TIMEOUT_MS = 3_000;
const MAX_BYTES = 4_096;
