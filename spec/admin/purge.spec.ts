/** POST /gateway/cache/purge: which stored replies are dropped, who may ask for it, and what is reported. */
import { describe, expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { ask as request, eventually } from "../support/raw_client.ts";
import { writable } from "./writable.ts";

const JSON_TYPE = { "content-type": "application/json" };

/** A gateway with two services that cache; the upstream answers with tags by the path, and counts. */
async function caching() {
  const hold: (() => void)[] = [];
  let isHeld = false;
  const upstream = await backend((asked, response) => {
    const [, tag = ""] = /tag=([^&]*)/.exec(asked.url!) ?? [];
    const end = () =>
      void response
        .writeHead(200, {
          "Cache-Control": "max-age=600",
          ...(tag !== "" && { "Cache-Tag": `all, ${tag}`, "Surrogate-Key": `x-${tag} y` }),
        })
        .end("ok");
    if (isHeld) hold.push(end);
    else end();
  });
  const service = (name: string) => ({
    name,
    base_path: `/${name}`,
    upstreams: [{ id: "u", host: "127.0.0.1", port: upstream.port }],
    plugins: [{ name: "response_cache" }],
    routes: [
      { name: "items", path: "/items/{id}" },
      { name: "rest", path: "/{rest*}" },
    ],
  });
  const own = await writable({ services: [service("a"), service("b")] });
  const { port } = await own.gateway.listen({ port: 0 });
  const get = (path: string, host = "shop.example.com") => request(port, { path, headers: { Host: host } });
  return {
    ...own,
    get,
    /** Whether each of these is stored, looked up without changing anything. */
    stored: async (...paths: string[]) => {
      const answers = paths.map((path) =>
        request(port, { path, headers: { Host: "shop.example.com", "Cache-Control": "only-if-cached" } }),
      );
      return (await Promise.all(answers)).map(({ status }) => status === 200);
    },
    purge: async (body?: unknown) => {
      const asked = body === undefined ? {} : { body: JSON.stringify(body), headers: JSON_TYPE };
      const { status, json } = await own.asAdmin("POST", "/gateway/cache/purge", asked);
      return [status, json.purged ?? json.detail] as const;
    },
    upstream,
    held: () => {
      isHeld = true;
      return hold;
    },
  };
}

const PATHS = ["/a/items/1?tag=red", "/a/items/2", "/a/x?tag=blue", "/b/items/1?tag=red"];

describe("POST /gateway/cache/purge", () => {
  it.each<[string, object | undefined, number[]]>([
    ["everything without a body", undefined, []],
    ["everything with {}", {}, []],
    ["those of a service", { service: "a" }, [3]],
    ["those of a route of a service", { service: "a", route: "items" }, [2, 3]],
    ["those of a route of any service", { route: "items" }, [2]],
    ["one URL", { url: "http://shop.example.com/a/items/2" }, [0, 2, 3]],
    ["one URL as clients may write it", { url: "HTTP://SHOP.example.com:80/a//items/%32" }, [0, 2, 3]],
    ["one path of all hosts", { url: "/a/x?tag=blue" }, [0, 1, 3]],
    ["no other query than that of the URL", { url: "/a/x" }, [0, 1, 2, 3]],
    ["a prefix", { prefix: "http://shop.example.com/a/items/" }, [2, 3]],
    ["a prefix of all hosts", { prefix: "/a/" }, [3]],
    ["nothing of another host", { prefix: "http://other.example.com/" }, [0, 1, 2, 3]],
    ["a tag of Cache-Tag", { tag: "red" }, [1, 2]],
    ["a tag of Surrogate-Key", { tag: "x-blue" }, [0, 1, 3]],
    ["no part of a tag", { tag: "re" }, [0, 1, 2, 3]],
    ["what fits all fields", { service: "a", tag: "red" }, [1, 2, 3]],
  ])("drops %s, and answers with their number", async (_what, body, kept) => {
    const { get, purge, stored } = await caching();
    for (const path of PATHS) await get(path);
    expect(await stored(...PATHS)).toEqual(PATHS.map(() => true));
    expect(await purge(body)).toEqual([200, PATHS.length - kept.length]);
    expect(await stored(...PATHS)).toEqual(PATHS.map((_, i) => kept.includes(i)));
  });

  it("keeps a reply out of the cache that was asked for before, and gives it to nobody who asks later", async () => {
    const { get, purge, stored, upstream, held } = await caching();
    const waiting = held();
    const first = get("/a/x");
    await eventually(() => waiting.length === 1);
    expect(await purge({})).toEqual([200, 0]);
    const second = get("/a/x");
    await eventually(() => waiting.length === 2);
    waiting[0]!();
    expect((await first).status).toBe(200);
    expect(await stored("/a/x")).toEqual([false]);
    waiting[1]!();
    expect((await second).status).toBe(200);
    expect(await stored("/a/x")).toEqual([true]);
    expect(upstream.seen).toHaveLength(2);
  });

  it("refuses what it does not know, and drops nothing", async () => {
    const { get, purge, stored } = await caching();
    await get(PATHS[0]!);
    for (const [body, status, detail] of [
      [[], 400, "The body is no object."],
      [{ tags: "red" }, 400, 'There is no field "tags": use service, route, url, prefix, tag.'],
      [{ tag: "" }, 400, '"tag" must be a text that is not empty.'],
      [{ tag: ["red"] }, 400, '"tag" must be a text that is not empty.'],
      [{ url: "shop.example.com/a" }, 400, '"url" must be a path, or a URL with http or https'],
      [{ url: "/a/../b" }, 400, '"url" must be a path, or a URL with http or https'],
      [{ prefix: "ftp://x/" }, 400, '"prefix" must begin with a path, or with a URL with http or https.'],
      [{ service: "c" }, 404, "The configuration in force has no such service or route."],
      [{ service: "a", route: "c" }, 404, "The configuration in force has no such service or route."],
    ] as const)
      expect(await purge(body)).toEqual([status, expect.stringContaining(detail)]);
    expect(await stored(PATHS[0]!)).toEqual([true]);
  });

  it("is for administrators, and each purge is a line of the log and of the audit log", async () => {
    const { asViewer, ask, purge, lines, get } = await caching();
    expect((await asViewer("POST", "/gateway/cache/purge")).status).toBe(403);
    expect((await ask("POST", "/gateway/cache/purge")).status).toBe(401);
    await get(PATHS[0]!);
    await purge({ tag: "red" });
    const changes = lines().filter(({ message }) => message === "admin change");
    expect(changes).toMatchObject([{ action: "purge", tag: "red", purged: 1, address: "127.0.0.1" }]);
  });
});
