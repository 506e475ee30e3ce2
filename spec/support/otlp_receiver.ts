/** A collector that accepts OTLP/HTTP in JSON, gzip included; what its reader refuses fails the test. */
import http, { type IncomingHttpHeaders } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";
import { onTestFinished } from "vitest";

export interface Received {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface OtlpReceiver {
  readonly port: number;
  readonly origin: string;
  /** Exports that have arrived whole. */
  asked(): number;
  /** The first that `read` refused. */
  refused(): unknown;
}

/** What it answers with: a status and a body, "{}" by default, or never with 0. */
export interface Answers {
  status: number;
  body?: string;
}

/** Runs until the test ends; over HTTPS if it has an identity. `answer` gets the number of exports before. */
export async function otlpReceiver(
  read: (received: Received) => void,
  answer: Answers | ((response: http.ServerResponse, nth: number) => void) = { status: 200 },
  identity?: { readonly cert: string; readonly key: string },
): Promise<OtlpReceiver> {
  let asked = 0;
  const problems: unknown[] = [];
  const take: http.RequestListener = (request, response) => {
    const chunks: Buffer[] = [];
    request.on("error", () => {});
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { url, headers } = request;
      const body = Buffer.concat(chunks);
      try {
        if (request.method !== "POST" || headers["content-type"] !== "application/json") throw new Error("no export");
        const text = String(headers["content-encoding"] === "gzip" ? gunzipSync(body) : body);
        read({ url: url!, headers, text });
      } catch (error) {
        problems.push(error);
      }
      asked++;
      if (typeof answer === "function") answer(response, asked - 1);
      else if (answer.status > 0)
        response.writeHead(answer.status, { "Content-Type": "application/json" }).end(answer.body ?? "{}");
    });
  };
  const server = identity === undefined ? http.createServer(take) : https.createServer(identity, take);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
    if (problems.length > 0) throw problems[0];
  });
  const { port } = server.address() as AddressInfo;
  const origin = identity === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`;
  return { port, origin, asked: () => asked, refused: () => problems[0] };
}
