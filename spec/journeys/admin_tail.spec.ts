import { request } from "node:http";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

describe("edge-gateway run with an admin interface", () => {
  it("streams requests to a page as they happen, explains one, and ends the stream and itself on SIGTERM", async () => {
    const origin = await backend();
    const running = await runningProgram(oneService(origin.port), [], {
      ADMIN_USER: "admin",
      ADMIN_PASSWORD: "the password",
    });
    const admin = Number(new URL(running.started.admin as string).port);
    const authorization = `Basic ${Buffer.from("admin:the password").toString("base64")}`;
    const call = (method: string, path: string, headers: Record<string, string>, body = "") =>
      new Promise<{ status: number; headers: Record<string, unknown>; text: string }>((resolve, reject) => {
        const asked = request({ host: "127.0.0.1", port: admin, method, path, headers, agent: false }, (response) => {
          let text = "";
          response
            .on("data", (part) => void (text += String(part)))
            .on("end", () => resolve({ status: response.statusCode!, headers: response.headers, text }));
        });
        asked.on("error", reject).end(body);
      });
    const login = await call("POST", "/login", { authorization });
    const cookie = String((login.headers["set-cookie"] as string[])[0]).split(";")[0]!;

    let lines = "";
    let isOver = false;
    request(
      { host: "127.0.0.1", port: admin, path: "/gateway/tail", headers: { cookie }, agent: false },
      (response) => {
        response.on("data", (part) => void (lines += String(part))).on("end", () => void (isOver = true));
      },
    ).end();
    await eventually(() => lines.startsWith("retry: "), "the stream");
    expect(JSON.parse((await call("GET", "/gateway/stats", { cookie })).text).total.requests_per_s).toBe(0);

    await ask(running.port, { path: "/a/x" });
    await eventually(() => lines.includes('"path":"/a/x"'), "the line of a request");
    const [service] = JSON.parse((await call("GET", "/gateway/stats", { cookie })).text).services;
    expect(service.upstreams[0]).toMatchObject({ id: `127.0.0.1:${origin.port}`, errors_per_s: 0 });
    expect([service.routes.length, service.total.requests_per_s > 0]).toEqual([2, true]);

    const explained = await call(
      "POST",
      "/gateway/explain",
      { cookie, "content-type": "application/json" },
      '{"method":"GET","url":"/a/x","headers":{}}',
    );
    expect(JSON.parse(explained.text)).toMatchObject({
      outcome: "matched",
      service: "s",
      forwarded: "/x",
      upstreams: [{ share: 1 }],
    });

    running.child.kill("SIGTERM");
    await eventually(() => isOver, "the end of the stream");
    expect((await running.ended).code).toBe(0);
  });
});
