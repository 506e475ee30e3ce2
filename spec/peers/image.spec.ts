/**
 * The Dockerfile, built and run by Debian's buildah. Its base images are stand-ins made of this machine's Node: no
 * registry is asked.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/index.ts";
import { found, root } from "../support/documents.ts";
import { oneService } from "../support/gateway.ts";
import { freePort, origin } from "../support/origin.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder } from "./built.ts";

/** A command that has to succeed; its output, without the last line break. */
function output(command: string, args: readonly string[], cwd = root): string {
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith("npm_")),
  );
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    env: { ...environment, BUILDAH_ISOLATION: "chroot" },
  });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr}${stdout}`);
  return stdout.trimEnd();
}

/** Copies a program of this machine to `target` below `folder`, and the libraries it needs. */
function addProgram(folder: string, program: string, target: string): void {
  const needed = found(output("ldd", [program]), /(\/\S+)/g).map((path) => [path, path] as const);
  for (const [from, to] of [[program, target] as const, ...needed]) {
    mkdirSync(join(folder, dirname(to)), { recursive: true });
    copyFileSync(from, join(folder, to));
  }
}

/** The last of a process, its child, the child of that, …: the program of a container. */
function innermost(pid: number): number {
  const children = readdirSync(`/proc/${pid}/task`).map(
    (thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").split(" ", 1)[0]!,
  );
  const next = children.find((each) => each !== "");
  return next === undefined ? pid : innermost(Number(next));
}

describe("the Dockerfile", () => {
  it(
    "the Dockerfile builds from the tarball alone an image that runs as nobody, without a shell, serves, " +
      "checks its health and drains",
    { timeout: 300_000 },
    async () => {
      const folder = emptyFolder();
      const store = ["--storage-driver", "vfs", "--root", join(folder, "store"), "--runroot", join(folder, "run")];
      const buildah = (...args: string[]) => output("buildah", [...store, ...args]);
      const base = (name: string, programs: Readonly<Record<string, string>>) => {
        const files = join(folder, name);
        mkdirSync(join(files, "tmp"), { recursive: true });
        for (const [target, program] of Object.entries(programs)) addProgram(files, program, target);
        const container = buildah("from", "scratch");
        buildah("copy", "--quiet", container, files, "/");
        buildah("config", "--env", "PATH=/usr/local/bin:/bin", container);
        buildah("commit", "--quiet", container, `localhost/${name}`);
        return `localhost/${name}`;
      };
      const tools = Object.fromEntries(["sh", "tar", "gzip", "mkdir"].map((name) => [`/bin/${name}`, `/bin/${name}`]));
      const images = {
        NODE_IMAGE: base("node", { "/usr/local/bin/node": process.execPath, ...tools }),
        BASE_IMAGE: base("distroless", { "/nodejs/bin/node": process.execPath }),
      };
      const context = join(folder, "context");
      mkdirSync(context);
      output("npm", ["pack", "--ignore-scripts", "--pack-destination", context]);
      const given = Object.entries(images).flatMap(([name, image]) => ["--build-arg", `${name}=${image}`]);
      buildah(
        "build",
        "--pull-never",
        "--format",
        "docker",
        "-f",
        join(root, "examples/docker/Dockerfile"),
        "-t",
        "edge-gateway",
        ...given,
        context,
      );

      const { Docker } = JSON.parse(buildah("inspect", "--type", "image", "edge-gateway")) as {
        Docker: { config: Record<string, unknown> };
      };
      const program = ["node", "/opt/edge-gateway/dist/bin/edge-gateway.js"];
      expect(Docker.config).toMatchObject({
        User: "65532:65532",
        Entrypoint: program,
        Healthcheck: { Test: ["CMD", ...program, "healthcheck"] },
      });

      const container = buildah("from", "--pull-never", "edge-gateway");
      expect(buildah("run", container, "--", ...program, "--version")).toBe(version);
      const asked = `[process.getuid(), process.execPath, require("fs").existsSync("/bin/sh")]`;
      expect(buildah("run", container, "--", "node", "-p", `JSON.stringify(${asked})`)).toBe(
        '[65532,"/nodejs/bin/node",false]',
      );

      const upstream = await origin();
      onTestFinished(() => upstream.close());
      writeFileSync(join(folder, "gw.json"), JSON.stringify(oneService(upstream.port)), { mode: 0o644 });
      buildah("copy", "--quiet", container, join(folder, "gw.json"), "/etc/edge-gateway/gw.json");
      const [port, probePort] = [await freePort(), await freePort()];
      buildah(
        "config",
        "--env",
        `HTTP_PORT=${port}`,
        "--env",
        "LISTEN_HOST=127.0.0.1",
        "--env",
        `PROBE_PORT=${probePort}`,
        container,
      );
      expect(() => buildah("run", container, "--", ...program, "healthcheck")).toThrow("nothing listens there");
      const env = { ...process.env, BUILDAH_ISOLATION: "chroot" };
      const running = spawn("buildah", [...store, "run", container, "--", ...program], {
        env,
        stdio: ["ignore", "ignore", "pipe"],
      });
      const ended = once(running, "close");
      onTestFinished(async () => {
        // Not buildah itself, which unmounts what it has mounted when its program ends.
        if (running.exitCode === null) process.kill(innermost(running.pid!), "SIGKILL");
        await ended;
      });
      let said = "";
      await new Promise<void>((resolve, reject) => {
        running.stderr!.on("data", (chunk: Buffer) => {
          said += chunk.toString();
          if (/ started"/.test(said)) resolve();
        });
        void ended.then(() => reject(new Error(`it ended: ${said}`)));
      });
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(buildah("run", container, "--", ...program, "healthcheck")).toBe(
        `http://127.0.0.1:${probePort}/readyz answered 200`,
      );
      process.kill(innermost(running.pid!), "SIGTERM"); // buildah itself would end at once
      expect([await ended, said]).toEqual([[0, null], expect.stringContaining('"message":"stopped"')]);
    },
  );
});
