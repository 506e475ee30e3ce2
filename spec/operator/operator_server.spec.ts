import { once } from "node:events";
import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { createOperatorServer } from "../../lib/operator/operator_server.ts";
import { LOOPBACK } from "../support/addresses.ts";
import { manualClock } from "../support/clock.ts";

// A machine without IPv6 has no "::".
it.runIf(LOOPBACK.includes("::1"))('on "::" it takes clients by IPv4 and by IPv6', async () => {
  const serve = () => ({ status: 204, headers: [], body: null });
  const server = createOperatorServer({
    clock: manualClock(),
    log: silentLog,
    tls: null,
    serve,
    endStreams: () => undefined,
    maxBodyBytes: 0,
  });
  const { port } = await server.listen({ host: "::", port: 0 });
  onTestFinished(() => server.close());
  for (const host of ["127.0.0.1", "::1"]) {
    const client = connect({ host, port });
    client.end("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const [answer] = (await once(client, "data")) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 204 /);
  }
});
