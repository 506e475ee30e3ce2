import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { ignore } from "../../lib/base/errors.ts";
import { Call } from "../../lib/http/exchange.ts";
import { head, refuseUnread, type Http1Options } from "../../lib/server/http1.ts";
import { connectionWithoutTls } from "../../lib/server/inbound.ts";
import { defaultLimits } from "../support/limits.ts";
import { manualClock } from "../support/clock.ts";

it("writes a head as its first line and header lines, byte for byte", () => {
  expect(head("HTTP/1.1 200 OK", ["A", "1", "a", "2", "Caf\xe9", ""])).toBe(
    "HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nCaf\xe9: \r\n\r\n",
  );
  expect(head("GET / HTTP/1.1", [])).toBe("GET / HTTP/1.1\r\n\r\n");
});

it("refuses a request with a whole problem document that announces the end of the connection", () => {
  const socket = new PassThrough();
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const clock = manualClock();
  const options = {
    clock,
    connectionOf: connectionWithoutTls,
    receiving: () => ({ clock, proxies: null, limits: defaultLimits }),
  } as unknown as Http1Options;
  const call = new Call({ id: "id-2", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: ignore });
  refuseUnread(socket, options, { code: "bad_request", detail: "for the log" }, { call, said: "Because." });
  const [first, body] = text.split("\r\n\r\n");
  expect(first).toMatch(
    new RegExp(
      String.raw`^HTTP\/1\.1 400 Bad Request\r\nContent-Type: application\/problem\+json\r\n` +
        String.raw`Content-Length: \d+\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n` +
        String.raw`X-Request-Id: id-2\r\nConnection: close$`,
    ),
  );
  expect(JSON.parse(body!)).toEqual({
    type: "about:blank",
    title: "The request is malformed",
    status: 400,
    detail: "Because.",
    code: "bad_request",
    request_id: "id-2",
  });
});
