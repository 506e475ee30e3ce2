import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { origin, type Origin } from "../support/origin.ts";
import { CREDENTIALS, emptyFolder, startBuilt } from "./built.ts";

const run = promisify(execFile);

/** Runs curl; its output. A proxy of the surroundings must not stand between. */
async function curl(...args: string[]): Promise<string> {
  const { stdout } = await run("curl", ["--silent", "--show-error", "--noproxy", "*", "--max-time", "10", ...args], {
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

async function backend(answer?: Parameters<typeof origin>[0]): Promise<Origin> {
  const started = await origin(answer);
  onTestFinished(() => started.close());
  return started;
}

const echo: Parameters<typeof origin>[0] = (request, response, body) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  response.end(JSON.stringify({ method: request.method, url: request.url, bytes: body.length }));
};

describe("curl against the built gateway", () => {
  it("gets what the upstream answers, with the base_path removed", async () => {
    const upstream = await backend(echo);
    const { url } = await startBuilt(oneService(upstream.port));
    expect(JSON.parse(await curl(`${url}/a/b/c?x=%20y`))).toEqual({ method: "GET", url: "/b/c?x=%20y", bytes: 0 });
  });

  it("uploads five megabytes, waiting for 100 Continue first", async () => {
    const upstream = await backend(echo);
    const { url } = await startBuilt(oneService(upstream.port));
    const file = join(emptyFolder(), "body");
    await run("dd", ["if=/dev/zero", `of=${file}`, "bs=1M", "count=5"]);
    const answer = await curl(
      "-H",
      "Expect: 100-continue",
      "--data-binary",
      `@${file}`,
      "--expect100-timeout",
      "8",
      `${url}/a/up`,
    );
    expect(JSON.parse(answer)).toMatchObject({ method: "POST", bytes: 5 * 1024 * 1024 });
  });

  it("uploads with chunked coding", async () => {
    const upstream = await backend(echo);
    const { url } = await startBuilt(oneService(upstream.port));
    const answer = await curl(
      "-X",
      "PUT",
      "-H",
      "Transfer-Encoding: chunked",
      "--data-binary",
      "x".repeat(100_000),
      `${url}/a/up`,
    );
    expect(JSON.parse(answer)).toMatchObject({ method: "PUT", bytes: 100_000 });
  });

  it.each(["--http1.1", "--http2-prior-knowledge"])(
    "decodes compressed bodies, whole or as a stream: %s",
    async (protocol) => {
      const text = "a line that repeats itself\n".repeat(20_000);
      const upstream = await backend((request, response) => {
        response.setHeader("Content-Type", "text/plain");
        if (request.url === "/whole") response.setHeader("Content-Length", text.length);
        for (let i = 0; i < text.length; i += 27_000) response.write(text.slice(i, i + 27_000));
        response.end();
      });
      const config = oneService(upstream.port, { plugins: [{ name: "compress" }] }, { h2c: true });
      const { url } = await startBuilt(config);
      const folder = emptyFolder();
      const [head, body] = [join(folder, "head"), join(folder, "body")];
      for (const path of ["whole", "stream"]) {
        // `--compressed` alone asks for all that this curl was built with; of that, gzip is in every one.
        for (const asking of [[], ["-H", "Accept-Encoding: gzip"]]) {
          const size = await curl(
            protocol,
            "--compressed",
            ...asking,
            "-D",
            head,
            "-o",
            body,
            "-w",
            "%{size_download}",
            `${url}/a/${path}`,
          );
          expect(readFileSync(body, "utf8") === text).toBe(true);
          expect(readFileSync(head, "latin1")).toMatch(
            asking.length > 0 ? /^content-encoding: gzip\r$/im : /^content-encoding: (zstd|br|gzip)\r$/im,
          );
          expect(Number(size)).toBeLessThan(text.length / 10);
        }
      }
    },
  );

  it("gets an error without the key, and beyond the limit, as the configuration says", async () => {
    const upstream = await backend(echo);
    const plugins = [
      { name: "key_auth", config: { key: "k" } },
      { name: "rate_limit", config: { limit_hour: 1 } },
    ];
    const { url } = await startBuilt(oneService(upstream.port, { plugins }));
    const status = ["-o", "/dev/null", "-w", "%{http_code}"];
    expect(await curl(...status, `${url}/a/x`)).toBe("401");
    expect(await curl(...status, `${url}/a/x?apiKey=k`)).toBe("200");
    expect(await curl(...status, "-H", "apikey: k", `${url}/a/x`)).toBe("429");
  });

  it("gets 404 for an unknown path and 400 for an unencoded dot segment", async () => {
    const { url } = await startBuilt(oneService((await backend()).port));
    const status = ["-o", "/dev/null", "-w", "%{http_code}"];
    expect(await curl(...status, `${url}/nope`)).toBe("404");
    expect(await curl(...status, "--path-as-is", `${url}/a/../b`)).toBe("400");
  });

  it("gets a reply over HTTP/1.1 when it offers an h2c upgrade", async () => {
    const { url } = await startBuilt(oneService((await backend(echo)).port));
    expect(await curl("--http2", "-w", " %{http_version}", `${url}/a/x`)).toMatch(/"url":"\/x".* 1\.1$/);
  });

  it("logs in, keeps the cookie, reads the configuration, and logs out", async () => {
    const { adminUrl } = await startBuilt(oneService((await backend()).port));
    // curl sends a Secure cookie over plain HTTP only to a host named localhost.
    const admin = adminUrl.replace("127.0.0.1", "localhost");
    const jar = join(emptyFolder(), "cookies");
    const status = ["-o", "/dev/null", "-w", "%{http_code}"];
    expect(await curl(...status, "-X", "POST", "-u", `${CREDENTIALS.user}:wrong`, `${admin}/login`)).toBe("401");
    expect(
      await curl(
        ...status,
        "-X",
        "POST",
        "-u",
        `${CREDENTIALS.user}:${CREDENTIALS.password}`,
        "-c",
        jar,
        `${admin}/login`,
      ),
    ).toBe("200");
    expect(readFileSync(jar, "utf8")).toMatch(/#HttpOnly_localhost\t.*\ttoken\t/);
    expect(JSON.parse(await curl("-b", jar, `${admin}/gateway`))).toMatchObject({
      services: [{ name: "s", base_path: "/a" }],
      plugins: [],
    });
    expect(Object.keys(JSON.parse(await curl("-b", jar, `${admin}/gateway/config`)) as object)).toEqual([
      "ServerCertPath",
      "ServerKeyPath",
      "CACertPath",
      "AdminUser",
      "AdminPassword",
      "ConfigFilePath",
    ]);
    expect(await curl(...status, "-X", "DELETE", "-b", jar, `${admin}/logout`)).toBe("204");
    expect(await curl(...status, "-b", jar, `${admin}/gateway`)).toBe("401");
  });
});
