/** Several workers, each with replies of its own. */
import { describe, expect, it } from "vitest";
import { definePlugin, schema, type Reply } from "../../../lib/index.ts";
import type { Gateway } from "../../../lib/embed/gateway.ts";
import { headerValue } from "../../../lib/http/headers.ts";
import { Changes, CHANGES_BYTES } from "../../../lib/plugins/cache/changes.ts";
import { gate } from "../../journeys/harness.ts";
import { manualClock } from "../../support/clock.ts";
import { program } from "../../support/program.ts";

/** A program whose upstream is a plugin: it answers GET with a number, which any other method raises. */
function versions() {
  const clock = manualClock();
  const upstream = { version: 1, asked: 0, sends: (): Promise<void> | void => {} };
  const origin = definePlugin({
    name: "origin",
    schema: schema.object({}),
    create:
      () =>
      () =>
      async ({ method, headers }): Promise<Reply> => {
        upstream.asked++;
        if (method !== "GET") upstream.version++;
        const { version } = upstream;
        const says = ["Cache-Control", "max-age=60", "ETag", `"${version}"`];
        if (method === "GET") await upstream.sends();
        if (headerValue(headers, "if-none-match") === `"${version}"`) return { status: 304, headers: says, body: null };
        return { status: 200, headers: says, body: Buffer.from(String(version)) };
      },
  });
  const plugins = [{ name: "response_cache" }, { name: "origin" }];
  const config = (path = "/{rest*}") => ({
    services: [
      {
        name: "a",
        base_path: "/a",
        upstreams: [{ host: "127.0.0.1", port: 9 }],
        routes: [{ path, methods: ["GET", "POST"], plugins }],
      },
    ],
  });
  return { clock, upstream, config, ...program(clock, config(), [origin]) };
}

async function get(worker: Gateway, path = "/a/x"): Promise<string> {
  const { status, body } = await worker.inject({ url: path });
  expect(status).toBe(200);
  return body.toString();
}

describe("stored replies of several workers", () => {
  it(
    "a change in one worker outdates what all workers have stored before, " + "and nothing that they store after it",
    async () => {
      const { upstream, worker } = versions();
      const workers = [worker(), worker(), worker()];
      for (const each of workers) expect([await get(each), await get(each)]).toEqual(["1", "1"]);
      expect(upstream.asked).toBe(3);
      await workers[0]!.inject({ url: "/a/x", method: "POST" });
      for (const each of workers) expect([await get(each), await get(each)]).toEqual(["2", "2"]);
      expect(upstream.asked).toBe(7);
    },
  );

  it("a change in one worker keeps the other worker's stored replies for other targets", async () => {
    const { upstream, worker } = versions();
    const [one, other] = [worker(), worker()];
    const paths = Array.from({ length: 20 }, (_each, i) => `/a/${i}`);
    for (const path of paths) await get(other, path);
    await one.inject({ url: "/a/x", method: "POST" });
    const before = upstream.asked;
    for (const path of paths) await get(other, path);
    // A target may share its counter with another one, by chance.
    expect(upstream.asked - before).toBeLessThan(5);
  });

  it(
    "a worker that starts after a change, and one that starts later in place of " + "another, hears of changes, too",
    async () => {
      const { worker } = versions();
      const one = worker();
      await one.inject({ url: "/a/x", method: "POST" });
      const late = worker();
      expect([await get(one), await get(late)]).toEqual(["2", "2"]);
      await late.inject({ url: "/a/x", method: "POST" });
      expect([await get(one), await get(late)]).toEqual(["3", "3"]);
    },
  );

  it("a reload keeps the stored replies of all workers and the memory of their changes", async () => {
    const { upstream, worker, main, config } = versions();
    const workers = [worker(), worker()];
    for (const each of workers) await get(each);
    for (const each of [main, ...workers]) await each.reload({ ...config(), global: { name: "other" } } as never);
    for (const each of workers) await get(each);
    expect(upstream.asked).toBe(2);
    await workers[0]!.inject({ url: "/a/x", method: "POST" });
    expect(await get(workers[1]!)).toBe("2");
  });

  it(
    "a reply that was on its way in one worker while another changed its target " + "answers its client alone",
    async () => {
      const { upstream, worker } = versions();
      const [one, other] = [worker(), worker()];
      const held = gate();
      upstream.sends = () => held.opened;
      const early = get(one);
      await other.inject({ url: "/a/x", method: "POST" });
      upstream.sends = () => {};
      // A later request does not wait for the old reply, either.
      expect(await get(one)).toBe("2");
      held.open();
      expect(await early).toBe("1");
      expect(await get(one)).toBe("2");
      expect(upstream.asked).toBe(3);
    },
  );

  it(
    "a request that waited for a reply which another worker's change has outdated asks the " +
      "upstream, and its reply is stored",
    async () => {
      const { upstream, worker } = versions();
      const [one, other] = [worker(), worker()];
      const held = gate();
      upstream.sends = () => held.opened;
      const early = [get(one), get(one)];
      await other.inject({ url: "/a/x", method: "POST" });
      upstream.sends = () => {};
      held.open();
      expect(await Promise.all(early)).toEqual(["1", "2"]);
      expect(await get(one)).toBe("2");
      expect(upstream.asked).toBe(3);
    },
  );

  it(
    "a validation that was on its way in one worker while another changed the target does not " +
      "make the old reply fresh",
    async () => {
      const { clock, upstream, worker } = versions();
      const [one, other] = [worker(), worker()];
      expect(await get(one)).toBe("1");
      clock.advance(60_000);
      const held = gate();
      upstream.sends = () => held.opened;
      const early = get(one);
      await other.inject({ url: "/a/x", method: "POST" });
      upstream.sends = () => {};
      held.open();
      expect(await early).toBe("1");
      expect(await get(one)).toBe("2");
    },
  );

  it("each instance has memory for its changes, by a name that holds its place in the configuration", () => {
    const { made } = versions();
    expect([...made.keys()].filter((name) => name.startsWith("plugin "))).toEqual([
      expect.stringMatching(/^plugin .*route.*response_cache.*changes/),
    ]);
  });
});

describe("the counters of changes", () => {
  it("the counters of changes are one for all that have the memory, and nearly every key has one of its own", () => {
    const memory = new ArrayBuffer(CHANGES_BYTES);
    const [one, other] = [new Changes(memory), new Changes(memory)];
    const keys = Array.from({ length: 1_000 }, (_each, i) => `http://gateway.example/${i}`);
    for (let i = 0; i < 3; i++) one.add(keys[0]!);
    expect([one.of(keys[0]!), other.of(keys[0]!)]).toEqual([3, 3]);
    expect(keys.filter((key) => other.of(key) > 0).length).toBeLessThan(10);
  });

  it("the counters of changes that keys share differ from program to program", () => {
    const shared = () => {
      const changes = new Changes(new ArrayBuffer(CHANGES_BYTES));
      // some 60 of the other keys share a counter with one of these
      for (let i = 0; i < 100; i++) changes.add(`changed ${i}`);
      return Array.from({ length: 40_000 }, (_each, i) => i)
        .filter((i) => changes.of(String(i)) > 0)
        .join();
    };
    expect(shared()).not.toBe(shared());
  });
});
