/**
 * SEAL: which rights of Node's permission model a gateway gives up, and which start is refused. With a stand-in for the
 * model, which not every Node has.
 */
import { describe, expect, it } from "vitest";
import { missingPermission } from "../../lib/base/errors.ts";
import { giveUp, giveUpInAll, rightsOfThreads, type Permission } from "../../lib/base/rights.ts";
import { accepted, Failure } from "../../lib/cli/failure.ts";
import { grantsIn, needsOf, superfluous, type Needs } from "../../lib/cli/seal.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { fileWith, program } from "../support/process.ts";

const NEEDS: Needs = {
  read: ["/app/lib/", "/etc/gw/gw.json", "/var/log/gw.log", "/var/state/*", "/etc/gw/.gw.json.*"],
  write: ["/var/log/gw.log", "/var/state/*"],
  threads: false,
};
const EXACT = [
  "--permission",
  "--allow-fs-read=/app/lib/",
  "--allow-fs-read=/etc/gw/gw.json",
  "--allow-fs-read=/var/log/gw.log",
  "--allow-fs-write=/var/log/gw.log",
];

/**
 * The model with these scopes, and paths as "scope path". As Node does, it gives up only what it has by the same name.
 */
function model(...granted: string[]): Permission {
  const rights = new Set(granted);
  const name = (scope: string, path?: string) => (path === undefined ? scope : `${scope} ${path}`);
  return {
    has: (scope, path) => rights.has(name(scope, path)),
    drop: (scope, path) => void rights.delete(name(scope, path)),
  };
}

const node = (execArgv: readonly string[], options = "", permission: Permission | undefined = model()) => ({
  version: "v24.21.0",
  execArgv,
  env: { NODE_OPTIONS: options },
  permission: permission!,
});

function refused(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    expect(error).toBeInstanceOf(Failure);
    expect((error as Failure).exitCode).toBe(2);
    return (error as Failure).message;
  }
  throw new Error("nothing was refused");
}

describe("what is given up", () => {
  it("is the right to start a thread where none is needed, whatever else is granted", () => {
    expect(superfluous(NEEDS, node(EXACT))).toEqual([{ scope: "worker" }]);
    expect(superfluous({ ...NEEDS, threads: true }, node(EXACT))).toEqual([]);
  });

  it("is each right that no gateway needs", () => {
    const all = ["child", "addon", "wasi", "inspector", "ffi"];
    expect(superfluous(NEEDS, node(EXACT, "", model(...all, "net"))).map(({ scope }) => scope)).toEqual([
      ...all,
      "worker",
    ]);
  });

  it.each([
    ["another file", "--allow-fs-read=/etc/passwd", "/etc/passwd"],
    ["a folder with nothing needed in it", "--allow-fs-read=/home/", "/home/"],
    ["a name that begins as a needed one", "--allow-fs-read=/etc/gw/gw.json.old", "/etc/gw/gw.json.old"],
    ["a beginning of other names", "--allow-fs-read=/etc/pass*", "/etc/pass*"],
    ["a path beside the needed folder", "--allow-fs-read=/app/lib2", "/app/lib2"],
    ["a path with an underscore in its flag", "--allow_fs_read=/etc/passwd", "/etc/passwd"],
    ["a path with a comma", "--allow-fs-read=/a,/b", "/a,/b"],
    ["a path that leads elsewhere", "--allow-fs-read=/app/lib/../../etc/passwd", "/app/lib/../../etc/passwd"],
  ])("is %s, by the text of its flag", (_what, flag, path) => {
    expect(superfluous({ ...NEEDS, threads: true }, node([...EXACT, flag]))).toEqual([{ scope: "fs.read", path }]);
    expect(superfluous({ ...NEEDS, threads: true }, node(EXACT, ` ${flag} --no-warnings`))).toEqual([
      { scope: "fs.read", path },
    ]);
  });

  it("is a file that only reads need where it may be written", () => {
    expect(superfluous({ ...NEEDS, threads: true }, node([...EXACT, "--allow-fs-write", "/etc/gw/gw.json"]))).toEqual([
      { scope: "fs.write", path: "/etc/gw/gw.json" },
    ]);
  });

  it.each([
    "/app/lib",
    "/app/lib/*",
    "/app/lib/cli/run.js",
    "/var/state/",
    "/var/state/*",
    "/var/state/quotas",
    "/etc/gw/.gw.json.*",
    "/etc/../etc/gw/gw.json",
  ])("is not %s, which is needed", (path) => {
    expect(superfluous({ ...NEEDS, threads: true }, node([`--allow-fs-read=${path}`]))).toEqual([]);
  });
});

describe("a start is refused", () => {
  it("without the model, and with a Node that gives up nothing", () => {
    expect(refused(() => superfluous(NEEDS, { ...node([]), permission: undefined! }))).toMatch(
      /^SEAL \(--seal\) needs Node's permission model: start node with --permission .*edge-gateway audit --permission/,
    );
    expect(refused(() => superfluous(NEEDS, { ...node([], "", { has: () => false }), version: "v22.1.0" }))).toBe(
      "SEAL (--seal) needs a Node that can give up rights, 24.21 or newer, and this is Node 22.1.0",
    );
  });

  it.each([
    ["/etc/gw", "/etc/gw/gw.json --allow-fs-read=/etc/gw/.gw.json.*"],
    ["/etc", "/etc/gw/gw.json --allow-fs-read=/etc/gw/.gw.json.*"],
    ["/var/lo*", "/var/log/gw.log"],
    ["/app", "/app/lib/"],
    ["/", NEEDS.read.join(" --allow-fs-read=")],
    ["*", NEEDS.read.join(" --allow-fs-read=")],
  ])("for %s, wider than what is needed of it, with the flags to write instead", (path, instead) => {
    expect(refused(() => superfluous(NEEDS, node([...EXACT, `--allow-fs-read=${path}`])))).toBe(
      `SEAL (--seal) cannot give up a part of --allow-fs-read=${path}: ` +
        `write --allow-fs-read=${instead} in its place (edge-gateway audit --permission prints all flags)`,
    );
  });

  it("where all files may be written, and none needs to be", () => {
    expect(refused(() => superfluous({ ...NEEDS, write: [] }, node(["--allow-fs-write=*"])))).toContain(
      "--allow-fs-write=*: leave it out",
    );
    expect(refused(() => superfluous(NEEDS, node(EXACT, "", model("fs.write"))))).toContain(
      "--allow-fs-write=*: write --allow-fs-write=/var/log/gw.log",
    );
  });

  it("for a right that threads would have again", () => {
    expect(refused(() => superfluous({ ...NEEDS, threads: true }, node(EXACT, "", model("child"))))).toContain(
      "start node without --allow-child-process",
    );
  });

  it.each([
    [["--allow-fs-read=gw.json"], "", "needs absolute paths: --allow-fs-read=gw.json has none"],
    [["--allow-fs-read="], "", "needs absolute paths"],
    [["--allow-fs-write"], "", "needs absolute paths"],
    [[], '"--allow-fs-read=/a b"', "quotes"],
    [["--experimental-config-file=x.json"], "", "start node without --experimental-config-file=x.json"],
    [[], "--experimental-default-config-file", "start node without --experimental-default-config-file"],
  ])("for flags that cannot be read: %j and %j", (words, options, message) => {
    expect(refused(() => grantsIn(words, options))).toContain(message);
  });

  it("by the program, with exit code 2, before it listens", async () => {
    const { code, stderr } = await program(["--config", fileWith({ services: [] }), "--seal"], {
      environment: { LISTEN_HOST: "127.0.0.1" },
    }).ended;
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining("SEAL (--seal) needs a Node that can give up rights, 24.21 or newer"),
    ]);
  });
});

describe("giving up", () => {
  it("is checked: a right that is still there is an error", () => {
    const rights = [{ scope: "child" }, { scope: "fs.read", path: "/a/*" }];
    const wider: Permission = { has: (scope, path) => path === "/a/x" || scope === "child", drop() {} };
    expect(() => giveUp(rights, model("child", "fs.read /a/*"))).not.toThrow();
    expect(() => giveUp(rights, wider)).toThrow("Node does not give up child");
    expect(() => giveUp(rights.slice(1), wider)).toThrow("Node does not give up fs.read for /a/*");
  });

  it("is named where the model forbids something from then on", () => {
    const denied = { code: "ERR_ACCESS_DENIED", permission: "FileSystemRead", resource: "/a" };
    const flag =
      "Node's permission model forbids it: start node with --allow-fs-read=/a, " +
      "or with all flags that edge-gateway audit --permission prints";
    missingPermission.since = "";
    expect(missingPermission(denied)).toBe(flag);
    giveUp([{ scope: "child" }], model("child"));
    expect(missingPermission(denied)).toBe(
      `${flag}; SEAL has given up what the configuration of the start did not need: restart with the new one`,
    );
    expect(missingPermission({ code: "EACCES" })).toBeUndefined();
  });

  it("is the same in threads, which start none of their own", () => {
    giveUpInAll([{ scope: "child" }], model("child", "worker"));
    expect(rightsOfThreads()).toEqual([{ scope: "child" }, { scope: "worker" }]);
  });
});

describe("needs", () => {
  const naming = {
    accessLog: { enabled: true, file: "/var/log/gw.log" },
    testFiles: [],
    callerFiles: ["/etc/gw/callers.json"],
    named: ["/etc/gw/peek.mjs"],
  };
  const needs = (environment: Record<string, string>) =>
    needsOf(accepted(readSettings({}, { CONFIG_FILE_PATH: "/etc/gw/gw.json", ...environment })), naming);
  const ADMIN = { ADMIN_USER: "a", ADMIN_PASSWORD: "a-long-password-of-the-admin" };

  it.each([
    ["nothing else", {}, [], ["/var/log/gw.log"], false],
    ["a key", { CONFIG_PUBLIC_KEY: "/k.pub" }, ["/k.pub", "/etc/gw/gw.json.sig"], ["/var/log/gw.log"], false],
    [
      "certificates",
      { SERVER_CERT_PATH: "/s.crt", SERVER_KEY_PATH: "/s.key" },
      ["/s.crt", "/s.key"],
      ["/var/log/gw.log"],
      false,
    ],
    ["state", { STATE_DIR: "/var/state" }, ["/var/state/*"], ["/var/log/gw.log", "/var/state/*"], false],
    ["workers", { WORKERS: "2" }, [], ["/var/log/gw.log"], true],
    ["an admin interface", ADMIN, ["/proc/self/fd/"], ["/var/log/gw.log"], true],
    [
      "changes by the administrator",
      { ...ADMIN, ADMIN_WRITE: "true" },
      [],
      ["/var/log/gw.log", "/etc/gw/gw.json", "/etc/gw/.gw.json.*"],
      true,
    ],
  ])("with %s", (_what, environment, reads, writes, threads) => {
    const { read, write, threads: has } = needs(environment);
    expect(read).toEqual(
      expect.arrayContaining([
        "/etc/gw/gw.json",
        "/etc/gw/callers.json",
        "/etc/gw/peek.mjs",
        "/var/log/gw.log",
        ...reads,
      ]),
    );
    expect(read.filter((path) => path.startsWith("/etc/host") || path === "*")).toEqual([]);
    expect([write, has]).toEqual([writes, threads]);
  });
});
