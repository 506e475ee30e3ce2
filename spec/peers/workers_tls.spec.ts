/** The built gateway with workers, each of which looks up client certificates in one file of revocation lists. */
import { writeFileSync } from "node:fs";
import https from "node:https";
import { expect, it } from "vitest";
import { CA as SERVER_CA, SERVER } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { authority, type Issued } from "../support/pki.ts";
import { fileWith } from "../support/process.ts";
import { probeModule, withWorkers } from "./workers.ts";

const CLIENTS = authority("clients");
const [GOOD, BAD] = [CLIENTS.issue("good"), CLIENTS.issue("bad")];
const DAY_MS = 86_400_000;

/** What each new connection gets: the thread that has answered, or the code of the error. */
function asked(port: number, { cert, key }: Issued, options: https.RequestOptions = {}): Promise<string> {
  return new Promise((resolve) => {
    const request = https.get(
      {
        ...{ host: "127.0.0.1", port, path: "/a/x", servername: "localhost", agent: false },
        ...{ ca: SERVER_CA.cert, cert, key, ...options },
      },
      (response) => {
        response.resume();
        resolve(`${response.statusCode} by ${String(response.headers["x-worker"])}`);
      },
    );
    request.on("error", ({ code }: NodeJS.ErrnoException) => resolve(String(code)));
  });
}

/** The different outcomes of connections, as many as reach every worker but once in a million runs. */
async function outcomes(port: number, shown: Issued, options?: https.RequestOptions): Promise<readonly string[]> {
  const all: string[] = [];
  for (let i = 0; i < 24; i++) all.push(await asked(port, shown, options));
  return [...new Set(all)].sort();
}

it("every worker obeys global.tls: versions, and lists that are replaced while it runs", async () => {
  const upstream = await backend();
  const lists = fileWith(CLIENTS.list({ from: Date.now() - 2 * DAY_MS }), "clients.crl");
  const [cert, key, ca] = [SERVER.cert, SERVER.key, CLIENTS.cert].map((pem, i) => fileWith(String(pem), `${i}.pem`));
  const config = {
    ...oneService(upstream.port, { plugins: [{ name: "probe", config: {} }] }),
    global: { plugin_modules: [probeModule()], tls: { min_version: "1.3", client_crl: lists } },
  };
  const running = await withWorkers(config, {
    environment: { SERVER_CERT_PATH: cert!, SERVER_KEY_PATH: key!, CA_CERT_PATH: ca!, CLIENT_AUTH: "require" },
  });
  const port = Number(new URL((running.started.https as string[])[0]!).port);
  const served = await outcomes(port, BAD);
  expect(served).toHaveLength(2);
  for (const each of served) expect(each).toMatch(/^200 by \d+$/);
  expect(await outcomes(port, GOOD, { maxVersion: "TLSv1.2" })).toEqual(["EPROTO"]);
  writeFileSync(lists, CLIENTS.list({ revoked: [BAD] }));
  await running.says("files that the configuration names reloaded");
  for (const outcome of await outcomes(port, BAD)) expect(outcome).not.toMatch(/^200/);
  expect(await outcomes(port, GOOD)).toEqual(served);
  const metrics = await (
    await fetch(`${running.adminUrl}/metrics`, { headers: { cookie: await running.session() } })
  ).text();
  const refused = /handshakes_refused_total\{side="client",reason="cert_revoked"\} (\d+)/.exec(metrics)?.[1];
  expect(refused).toBe("24");
});
