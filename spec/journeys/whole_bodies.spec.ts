import { describe, expect, it } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";
import { byteBackend, client, codeIn, statusesIn } from "./harness.ts";

// A request body that arrives in one piece with its head is forwarded unchanged, in one write.

const post = (body: string, ...lines: string[]) =>
  ["POST /a/x HTTP/1.1", "Host: h", `Content-Length: ${body.length}`, ...lines].join("\r\n") + `\r\n\r\n${body}`;

describe("a request body that arrives with its head", () => {
  it.each([1, 4096, 16_384, 60_000])(
    "a request body that arrives with its head reaches the upstream unchanged with %i bytes, " +
      "request after request on one connection",
    async (bytes) => {
      const upstream = await backend((_request, response, body) => void response.end(`got ${body.length}`));
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      for (let i = 1; i <= 3; i++) {
        connection.send(post(String(i).repeat(bytes)));
        await eventually(
          () => statusesIn(connection.text()).length === i && connection.text().endsWith(`got ${bytes}`),
          "the reply",
        );
        expect(upstream.seen[i - 1]!.body.toString()).toBe(String(i).repeat(bytes));
      }
      expect(upstream.connections.total).toBe(1);
    },
  );

  it(
    "a request body that arrives with its head is sent to another upstream when " + "the first cannot be reached",
    async () => {
      const upstream = await backend();
      const retries = { attempts: 1 };
      const { port } = await running(oneService([await closedPort(), upstream.port], { retries }));
      for (let i = 0; i < 2; i++) {
        const connection = await client(port);
        connection.send(post("whole"));
        await connection.until("ok");
      }
      expect(upstream.seen.map(({ body }) => body.toString())).toEqual(["whole", "whole"]);
    },
  );

  it(
    "a request body that arrives with its head is not sent again to an upstream that has closed the " +
      "connection after receiving it",
    async () => {
      let requests = 0;
      const upstream = await byteBackend((socket) => {
        socket.on("data", () => {
          requests++;
          socket.destroy();
        });
      });
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(post("whole"));
      expect(codeIn(await connection.until('"code"'))).toBe("upstream_reset");
      expect(requests).toBe(1);
    },
  );

  it(
    "a request body that arrives with its head is a 500 when a plugin has changed its Content-Length, " +
      "and the upstream never gets more or less than that length",
    async () => {
      const lengthen = definePlugin({
        name: "restate",
        schema: schema.object({}),
        create: () => (next) => (exchange) =>
          next(exchange.with({ headers: exchange.headers.map((text) => (text === "5" ? "4" : text)) })),
      });
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port, { plugins: [{ name: "restate" }] }), {
        plugins: [lengthen],
      });
      const connection = await client(port);
      connection.send(post("whole"));
      expect(codeIn(await connection.until('"code"'))).toBe("internal");
      expect(upstream.seen).toEqual([]);
    },
  );

  it("a request body that arrives with its head is counted in the access log", async () => {
    const upstream = await backend();
    let lines = "";
    const config = oneService(upstream.port, {}, { access_log: { enabled: true } });
    const { port } = await running(config, { accessLog: (more) => void (lines += more) });
    const connection = await client(port);
    connection.send(post("whole"));
    await connection.until("ok");
    await eventually(() => lines.includes("\n"), "a line of the access log");
    expect(JSON.parse(lines)).toMatchObject({ method: "POST", status: 200, bytes_received: 5 });
  });
});
