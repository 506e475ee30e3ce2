import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { origin } from "../support/origin.ts";
import { startBuilt } from "./built.ts";

const run = promisify(execFile);
const TEXT = "a line that a browser would show\n".repeat(20_000);

async function gateway(): Promise<string> {
  const upstream = await origin((request, response) => {
    response.writeHead(200, { "Content-Type": "text/plain" });
    if (request.url !== "/events") return void response.end(TEXT);
    // Each event on its own: what is not flushed comes too late for a client that leaves after the first.
    response.write("data: first\n\n");
  });
  onTestFinished(() => upstream.close());
  return (await startBuilt(oneService(upstream.port, { plugins: [{ name: "compress", config: {} }] }))).url;
}

/** Output and what went over the wire. A proxy of the surroundings must not stand between. */
async function curl(...args: string[]): Promise<string> {
  const { stdout } = await run("curl", ["--silent", "--show-error", "--noproxy", "*", "--max-time", "10", ...args], {
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

describe("curl --compressed against the built gateway", () => {
  it("reads what the upstream sent, from far fewer bytes", async () => {
    const url = await gateway();
    expect(await curl("--compressed", `${url}/a/x`)).toBe(TEXT);
    const [size, status] = (
      await curl("--compressed", "-o", "/dev/null", "-w", "%{size_download} %{http_code}", `${url}/a/x`)
    ).split(" ");
    expect([Number(size) < TEXT.length / 10, status]).toEqual([true, "200"]);
  });

  it.each(["gzip", "br", "gzip;q=0.5, br;q=1, deflate"])("reads Accept-Encoding: %s", async (accepted) => {
    const url = await gateway();
    expect(await curl("--compressed", "-H", `Accept-Encoding: ${accepted}`, `${url}/a/x`)).toBe(TEXT);
    const head = await curl("-H", `Accept-Encoding: ${accepted}`, "-o", "/dev/null", "-D", "-", `${url}/a/x`);
    expect(head).toMatch(
      accepted.startsWith("gzip") && !accepted.includes("br") ? /Content-Encoding: gzip/ : /Content-Encoding: br/,
    );
  });

  it("gets plain text without Accept-Encoding", async () => {
    expect(await curl(`${await gateway()}/a/x`)).toBe(TEXT);
  });

  it("reads an event of a stream that has not ended", async () => {
    const url = await gateway();
    // curl ends with 28 when its time is up; what it has got until then is what counts.
    const { stdout } = await run("curl", [
      "--silent",
      "--noproxy",
      "*",
      "--no-buffer",
      "--compressed",
      "--max-time",
      "1",
      `${url}/a/events`,
    ]).catch((error: { stdout: string }) => error);
    expect(stdout).toBe("data: first\n\n");
  });
});
