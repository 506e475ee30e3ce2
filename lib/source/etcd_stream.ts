/**
 * One request to etcd whose answer does not end: lines of JSON, for as long as somebody reads them.
 */
import type { IncomingMessage } from "node:http";
import type { Egress } from "../base/egress.ts";
import { agentOf, requestBy } from "../base/egress_clients.ts";
import { connectFailure } from "../base/errors.ts";
import { entry } from "../base/event_loop.ts";
import { destinationOf } from "../base/url_destination.ts";
import { agentTls, type ClientTls } from "../client/client.ts";
import { etcdFailure, EtcdFailure } from "./etcd_failure.ts";
import { JsonLines, type JsonLine } from "./json_lines.ts";

interface StreamTarget {
  readonly url: URL;
  readonly tls: ClientTls | undefined;
  /** "": none. */
  readonly token: string;
  readonly egress: Egress;
  readonly why: string;
}

interface Reader {
  readonly receive: (line: JsonLine) => void;
  readonly signal: AbortSignal;
  /** Begins the time in which the first line has to come. */
  readonly limit: (expire: () => void) => { cancel(): void };
}

/** Rejects with an `EtcdFailure` when the answer ends, breaks or is not etcd's, or `signal` is aborted. */
export function openStream(target: StreamTarget, body: string, { receive, signal, limit }: Reader): Promise<never> {
  const { url, tls, token, egress, why } = target;
  const scheme = url.protocol === "https:" ? "https:" : "http:";
  const agent = agentOf(egress, why, scheme, scheme === "https:" ? agentTls(tls) : {});
  const lines = new JsonLines(MAX_LINE_BYTES);
  const unreachable = (what: string) => new EtcdFailure("unreachable", `etcd at ${url.host}: ${what}`);
  return new Promise<never>((_resolve, reject) => {
    if (signal.aborted) return reject(new EtcdFailure("cancelled", "the request was given up"));
    const { host, port } = destinationOf(url, why);
    const length = Buffer.byteLength(body);
    const request = requestBy(agent, {
      method: "POST",
      host,
      port,
      path: url.pathname,
      headers: {
        ...{ Host: url.host, "Content-Type": "application/json", "Content-Length": length },
        ...(token !== "" && { Authorization: token }),
      },
    });
    const end = (failure: EtcdFailure) => {
      timer.cancel();
      signal.removeEventListener("abort", cancel);
      request.destroy();
      agent.destroy();
      reject(failure);
    };
    const cancel = entry("the end of a watch", () => end(new EtcdFailure("cancelled", "the request was given up")));
    const timer = limit(() => end(unreachable("no answer in time")));
    signal.addEventListener("abort", cancel);
    const linesIn = (status: number, chunk: Buffer): readonly JsonLine[] => {
      try {
        return lines.read(chunk);
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        // Such as the page of a proxy.
        const isError = status !== 200;
        end(isError ? etcdFailure(url.host, status, undefined) : unreachable("a line of its answer is no JSON object"));
        return [];
      }
    };
    const read = (response: IncomingMessage, chunk: Buffer) => {
      const status = response.statusCode!;
      for (const line of linesIn(status, chunk)) {
        const content = line === "long" ? undefined : line.object;
        if (status !== 200 || content?.error !== undefined) return end(etcdFailure(url.host, status, content));
        timer.cancel();
        receive(line);
      }
    };
    request.on("response", (response) => {
      response.on("data", (chunk: Buffer) => read(response, chunk));
      response.on("end", () => {
        // An error has no line end.
        if (response.statusCode !== 200) read(response, Buffer.from("\n"));
        end(unreachable("the answer has ended"));
      });
      response.on("error", () => end(unreachable("the connection broke in the middle of the answer")));
    });
    request.on("error", (error) => end(unreachable(connectFailure(error))));
    request.on("close", () => end(unreachable("the connection was closed")));
    request.end(body);
  });
}

/**
 * Other lines than events have some hundred bytes. An event has the whole text of a configuration, which nobody reads
 * here: it says that there is another one.
 */
const MAX_LINE_BYTES = 64 * 1024;
