/**
 * Builds the release twice, as two users on two machines would, and checks it with the programs that its readers have.
 */
import { execFileSync, spawnSync, type SpawnSyncReturns } from "node:child_process";
import { createHash } from "node:crypto";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { hostname, tmpdir, userInfo } from "node:os";
import { basename, dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, document, root, tableUnder } from "../support/documents.ts";
import { version as current } from "../../lib/base/version.ts";
import { emptyFolder, PROGRAM } from "./built.ts";

/** The parts of CycloneDX's own library that are used here; without the package this file still compiles. */
interface CycloneDx {
  readonly Spec: { readonly Version: { readonly v1dot6: string } };
  readonly Validation: {
    readonly JsonStrictValidator: new (version: string) => { validate(text: string): Promise<unknown> };
  };
}
const { Spec, Validation } = createRequire(import.meta.url)("@cyclonedx/cyclonedx-library") as CycloneDx;

/** Of the release that is made here. */
const version = current.replace("-dev", "");
const TARBALL = `edge-gateway-${version}.tgz`;
const BOM = `edge-gateway-${version}.cdx.json`;
const PROVENANCE = `edge-gateway-${version}.provenance.json`;
const VEX = "vex.openvex.json";
const SIGNED = [TARBALL, BOM, PROVENANCE, VEX];
const EPOCH = 1_700_000_000;
const COMMIT_TIME = "2026-01-02T03:04:05Z";

/** The folder of all others, removed at the end. */
const above = mkdtempSync(join(tmpdir(), "edge-gateway-release-spec-"));
afterAll(() => rmSync(above, { recursive: true, force: true }), 180_000);
const at = (...names: readonly string[]) => join(above, ...names);
const [ada, bob] = [at("ada"), at("a folder of bob", "deep")];
const packageFolder = at("unpacked", "package");

interface Machine {
  readonly umask: string;
  readonly environment: Readonly<Record<string, string>>;
}

const ADA: Machine = {
  umask: "022",
  environment: { HOME: at("home of ada"), USER: "ada", TZ: "Asia/Tokyo", LANG: "de_DE.UTF-8" },
};
const BOB: Machine = {
  umask: "077",
  environment: { HOME: at("home of bob"), USER: "bob", TZ: "America/New_York", LC_ALL: "tr_TR.UTF-8" },
};

function sh(
  line: string,
  cwd: string,
  { umask, environment }: Machine = ADA,
  more: Readonly<Record<string, string>> = {},
): SpawnSyncReturns<string> {
  const env = { PATH: process.env.PATH, ...environment, ...more };
  return spawnSync("sh", ["-c", `umask ${umask}; ${line}`], {
    cwd,
    env,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
}

function done(...words: Parameters<typeof sh>): string {
  const { status, stdout, stderr } = sh(...words);
  if (status !== 0) throw new Error(`${words[0]} in ${words[1]} exits ${status}: ${stdout}${stderr}`);
  return stdout;
}

const sha256 = (content: string | Buffer) => createHash("sha256").update(content).digest("hex");
const filesBelow = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name));
const released = (machine: string, name: string) => readFileSync(join(machine, "release", name));
const json = (name: string) => JSON.parse(String(released(ada, name)));

/** A clone with the packages of this one, at other times. */
function clone(folder: string, machine: Machine): void {
  mkdirSync(machine.environment.HOME!, { recursive: true });
  mkdirSync(dirname(folder), { recursive: true });
  done(`git clone --quiet "${at("origin")}" "${folder}"`, above, machine);
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
}

/** What is here, committed or not, as one commit, and the commit of the release. */
function makeOrigin(): void {
  const origin = at("origin");
  for (const path of execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: root,
    encoding: "utf8",
  }).split("\0")) {
    if (path !== "" && existsSync(join(root, path))) cpSync(join(root, path), join(origin, path));
  }
  const who = {
    GIT_AUTHOR_NAME: "a",
    GIT_AUTHOR_EMAIL: "a@example.com",
    GIT_COMMITTER_NAME: "a",
    GIT_COMMITTER_EMAIL: "a@example.com",
  };
  const dates = { GIT_AUTHOR_DATE: COMMIT_TIME, GIT_COMMITTER_DATE: COMMIT_TIME };
  done("git init --quiet && git add --all && git commit --quiet --message all", origin, ADA, { ...who, ...dates });
  if (version === current) return;
  symlinkSync(join(root, "node_modules"), join(origin, "node_modules"));
  const [makeCommit] = blocksOf(document("docs/releases.md"), "sh")[3]!.split("\n");
  done(makeCommit!, origin, ADA, { ...who, ...dates });
}

beforeAll(() => {
  makeOrigin();
  clone(ada, ADA);
  clone(bob, BOB);
  const home = BOB.environment.HOME!;
  writeFileSync(join(home, ".gitconfig"), "[core]\n\tautocrlf = true\n");
  writeFileSync(join(home, ".npmrc"), "ignore-scripts=true\nforeground-scripts=true\n");
  for (const path of filesBelow(join(bob, "docs"))) utimesSync(path, 1, 1);
  writeFileSync(join(bob, "docs", "notes of bob.md"), "not committed");
  mkdirSync(join(bob, "dist/lib"), { recursive: true });
  writeFileSync(join(bob, "dist/lib/left_over.js"), "of an earlier build");
  // Under "Keys": two lines that make the keys, and one that makes a signed release.
  const [makePrivate, makePublic, makeRelease] = blocksOf(document("docs/releases.md"), "sh").at(-2)!.split("\n");
  for (const line of [makePrivate!, makePublic!, makeRelease!])
    done(line, ada, ADA, { SOURCE_DATE_EPOCH: String(EPOCH) });
  done("npm run release", bob, BOB, { SOURCE_DATE_EPOCH: String(EPOCH), RELEASE_KEY: join(ada, "private.pem") });
  mkdirSync(dirname(packageFolder));
  done(`tar -xzf "${join(ada, "release", TARBALL)}"`, dirname(packageFolder));
}, 180_000);

describe("a release", () => {
  it(
    "has the same bytes when another user makes it in another folder with another umask, time zone, " +
      "language, git and npm settings",
    () => {
      const names = readdirSync(join(ada, "release")).sort();
      expect(names).toEqual([...SIGNED, "SHA256SUMS", "SHA256SUMS.sig"].sort());
      expect(readdirSync(join(bob, "release")).sort()).toEqual(names);
      for (const name of names)
        expect({ name, sum: sha256(released(bob, name)) }).toEqual({ name, sum: sha256(released(ada, name)) });
    },
  );

  it("has the tarball that npm pack makes in a clean clone, whatever the umask", () => {
    const clean = at("clean");
    clone(clean, BOB);
    rmSync(join(BOB.environment.HOME!, ".npmrc"));
    done("npm pack --silent", clean, BOB);
    expect(sha256(readFileSync(join(clean, TARBALL)))).toBe(sha256(released(ada, TARBALL)));
  });

  it(
    "has the time of the commit without SOURCE_DATE_EPOCH, the same tarball, " +
      "and says that it is not signed and how to sign it",
    () => {
      const before = sha256(released(ada, TARBALL));
      const unsigned = at("unsigned");
      clone(unsigned, ADA);
      expect(done("npm run release", unsigned)).toContain(
        "this release is not signed; to sign it: npx edge-gateway sign release/SHA256SUMS --key private.pem\n",
      );
      expect(existsSync(join(unsigned, "release/SHA256SUMS.sig"))).toBe(false);
      expect(JSON.parse(String(released(unsigned, BOM))).metadata.timestamp).toBe("2026-01-02T03:04:05.000Z");
      expect(sha256(released(unsigned, TARBALL))).toBe(before);
    },
  );

  it("names no user, host or folder, and no owner or time but a constant one in the tarball", () => {
    const listing = done(`tar --numeric-owner --full-time --utc -tvzf "${join(ada, "release", TARBALL)}"`, above)
      .trimEnd()
      .split("\n");
    expect(listing.length).toBeGreaterThan(500);
    expect(new Set(listing.map((line) => line.split(/\s+/).slice(0, 2).join(" ")))).toEqual(
      new Set(["-rw-r--r-- 0/0", "-rwxr-xr-x 0/0"]),
    );
    expect(new Set(listing.map((line) => line.split(/\s+/)[3]))).toEqual(new Set(["1985-10-26"]));
    expect(listing.filter((line) => line.startsWith("-rwx")).map((line) => line.split(" ").at(-1))).toEqual([
      "package/dist/bin/edge-gateway.js",
    ]);
    expect(listing.filter((line) => !/ package\/[\w./-]+$/.test(line))).toEqual([]);
    const text = Buffer.concat([
      gunzipSync(released(ada, TARBALL)),
      released(ada, BOM),
      released(ada, PROVENANCE),
    ]).toString("latin1");
    const names = [above, root, hostname(), `${userInfo().homedir}/`].filter((name) => name.length > 4);
    expect(names.filter((name) => text.includes(name))).toEqual([]);
  });

  it.each([
    [
      "with changes that are not committed",
      (folder: string) => appendFileSync(join(folder, "README.md"), "x"),
      {},
      "there are changes that are not committed",
    ],
    [
      "with a SOURCE_DATE_EPOCH that is no number",
      () => {},
      { SOURCE_DATE_EPOCH: "today" },
      "SOURCE_DATE_EPOCH must be a whole number of seconds since 1970",
    ],
    [
      "with a negative SOURCE_DATE_EPOCH",
      () => {},
      { SOURCE_DATE_EPOCH: "-1" },
      "SOURCE_DATE_EPOCH must be a whole number of seconds since 1970",
    ],
    [
      "with an empty SOURCE_DATE_EPOCH",
      () => {},
      { SOURCE_DATE_EPOCH: "" },
      "SOURCE_DATE_EPOCH must be a whole number of seconds since 1970",
    ],
    [
      "with packages that package-lock.json does not name",
      otherPackages,
      {},
      "node_modules/typescript is not what package-lock.json names: run npm ci",
    ],
    [
      "with a key that is missing",
      () => {},
      { RELEASE_KEY: "/nowhere/private.pem" },
      "ENOENT: no such file or directory, open '/nowhere/private.pem'",
    ],
    [
      "with a public key",
      () => {},
      { RELEASE_KEY: join(ada, "public.pem") },
      "public.pem (RELEASE_KEY) has a public key; signing needs the private key",
    ],
  ] as const)("is refused %s, and leaves the last one as it was", (what, prepare, environment, message) => {
    const folder = at("refused", what);
    clone(folder, ADA);
    mkdirSync(join(folder, "release"));
    writeFileSync(join(folder, "release", "last"), "");
    prepare(folder);
    const { status, stderr } = sh("npm run --silent release", folder, ADA, environment);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^release: /);
    expect(stderr).toContain(message);
    expect(readdirSync(join(folder, "release"))).toEqual(["last"]);
  });

  function otherPackages(folder: string): void {
    rmSync(join(folder, "node_modules"));
    mkdirSync(join(folder, "node_modules"));
    for (const name of readdirSync(join(root, "node_modules")))
      symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
    const list = join(folder, "node_modules/.package-lock.json");
    const text = readFileSync(list, "utf8");
    const { integrity } = JSON.parse(text).packages["node_modules/typescript"];
    rmSync(list);
    writeFileSync(list, text.replace(integrity, `${integrity.slice(0, -4)}AA==`));
  }
});

describe("who gets a release", () => {
  /** The folder as it would be carried. */
  function carried(): string {
    const folder = emptyFolder();
    cpSync(join(ada, "release"), join(folder, "release"), { recursive: true });
    cpSync(join(ada, "public.pem"), join(folder, "public.pem"));
    return folder;
  }

  const [program, three] = blocksOf(document("docs/releases.md"), "sh").map((block) => block.trim()) as [
    string,
    string,
  ];
  const verify = (folder: string) =>
    sh(program.replace("npx edge-gateway", `"${process.execPath}" "${PROGRAM}"`), folder);
  const byHand = (folder: string) => sh(`set -e\n${three}`, join(folder, "release"));

  it("checks it with edge-gateway verify, and with the three documented lines of openssl and sha256sum", () => {
    const folder = carried();
    expect(three.split("\n")).toHaveLength(3);
    expect(verify(folder)).toMatchObject({ status: 0, stderr: "" });
    expect(byHand(folder)).toMatchObject({
      status: 0,
      stderr: "",
      stdout: expect.stringContaining(`${TARBALL}: OK\n`),
    });
  });

  it.each([
    ["a byte of the tarball is changed", (folder: string) => flip(join(folder, "release", TARBALL), 5000)],
    ["a byte of SHA256SUMS is changed", (folder: string) => flip(join(folder, "release/SHA256SUMS"), 3)],
    ["the signature is that of another file", (folder: string) => signedBy(folder, join(ada, "private.pem"), BOM)],
    ["another key has signed it", (folder: string) => signedBy(folder, foreignKey(folder), "SHA256SUMS")],
  ])("learns from both that %s", (_what, change) => {
    const folder = carried();
    change(folder);
    expect([verify(folder).status, byHand(folder).status]).toEqual([1, 1]);
  });

  function flip(path: string, place: number): void {
    const content = readFileSync(path);
    content[place]! ^= 1;
    writeFileSync(path, content);
  }

  function signedBy(folder: string, key: string, name: string): void {
    done(
      `openssl pkeyutl -sign -rawin -inkey "${key}" -in "${name}" | base64 -w0 > SHA256SUMS.sig`,
      join(folder, "release"),
    );
  }

  function foreignKey(folder: string): string {
    done("openssl genpkey -algorithm ed25519 -out foreign.pem", folder);
    return join(folder, "foreign.pem");
  }

  it("finds the same signature by npm run release, edge-gateway sign and openssl", () => {
    const folder = carried();
    const made = readFileSync(join(folder, "release/SHA256SUMS.sig"));
    cpSync(join(ada, "private.pem"), join(folder, "private.pem"));
    const lines = blocksOf(document("docs/releases.md"), "sh").at(-1)!.trim().split("\n");
    for (const line of lines) {
      rmSync(join(folder, "release/SHA256SUMS.sig"));
      done(line.replace("npx edge-gateway", `"${process.execPath}" "${PROGRAM}"`), folder);
      expect(readFileSync(join(folder, "release/SHA256SUMS.sig"))).toEqual(made);
    }
  });

  it("sees by verify the SHA-256 of the key that the documented line prints", () => {
    const folder = carried();
    const line = /`(openssl pkey -pubin [^`]+)`/.exec(document("docs/releases.md").text)![1]!;
    expect(verify(folder).stdout).toContain(done(line, folder).slice(0, 64));
  });
});

describe("the bill of materials", () => {
  it("is valid CycloneDX 1.6", async () => {
    expect(
      await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(String(released(ada, BOM))),
    ).toBeNull();
    const broken = String(released(ada, BOM)).replace('"type": "application"', '"type": "gateway"');
    expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(broken)).not.toBeNull();
  });

  it(
    "has one component that runs, with the hashes of the tarball, " +
      "and the tools that built it with the hashes of package-lock.json",
    () => {
      const { metadata, components, dependencies, formulation } = json(BOM);
      expect(metadata).toMatchObject({
        timestamp: new Date(EPOCH * 1000).toISOString(),
        component: { name: "edge-gateway", version, purl: `pkg:npm/edge-gateway@${version}` },
      });
      expect(metadata.component.hashes).toContainEqual({ alg: "SHA-256", content: sha256(released(ada, TARBALL)) });
      expect([components, dependencies]).toEqual([[], [{ ref: metadata.component["bom-ref"], dependsOn: [] }]]);
      const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
      const tools = formulation[0].components as readonly {
        readonly name: string;
        readonly version: string;
        readonly hashes?: readonly { readonly content: string }[];
      }[];
      expect(tools).toHaveLength(Object.keys(packages).length - 1 + 2);
      const { version: typescript, integrity } = packages["node_modules/typescript"];
      const content = Buffer.from(integrity.slice("sha512-".length), "base64").toString("hex");
      expect(tools.find(({ name }) => name === "typescript")).toMatchObject({
        version: typescript,
        hashes: [{ alg: "SHA-512", content }],
      });
      expect(tools.slice(0, 2)).toMatchObject([
        { name: "node", version: process.versions.node },
        { name: "npm", version: done("npm --version", above).trim() },
      ]);
    },
  );
});

describe("the VEX document", () => {
  it("is of this release", () => {
    expect(json(VEX)).toMatchObject({
      "@id": `urn:edge-gateway:vex:${version}`,
      timestamp: new Date(EPOCH * 1000).toISOString(),
    });
  });
});

describe("the provenance", () => {
  it("names the files with their SHA-256, the commit, the tools, and the tarball without its compression", () => {
    const { subject, predicateType, predicate } = json(PROVENANCE);
    expect(subject).toEqual(
      [TARBALL, BOM, VEX].map((name) => ({ name, digest: { sha256: sha256(released(ada, name)) } })),
    );
    const commit = done("git rev-parse HEAD", ada).trim();
    expect([predicateType, predicate.buildDefinition.externalParameters]).toEqual([
      "https://slsa.dev/provenance/v1",
      { version, commit, source_date_epoch: EPOCH },
    ]);
    const uris = predicate.buildDefinition.resolvedDependencies.map(({ uri }: { readonly uri?: string }) => uri);
    expect(uris).toEqual(
      expect.arrayContaining([
        `pkg:generic/node@${process.versions.node}`,
        expect.stringMatching(/^pkg:npm\/typescript@\d/),
      ]),
    );
    const line = /`(gzip -dc [^`]+)`/.exec(document("docs/releases.md").text)![1]!;
    expect(done(line, join(ada, "release"))).toContain(predicate.runDetails.byproducts[0].digest.sha256);
  });
});

describe("the tarball", () => {
  const packaged = () => filesBelow(packageFolder).map((path) => path.slice(packageFolder.length + 1));

  it(
    "has the source of every program file, and says nothing twice: " +
      "comments are in the sources and declarations alone",
    () => {
      const programs = packaged().filter((path) => /^dist\/.*\.js$/.test(path));
      expect(programs.length).toBeGreaterThan(200);
      const sources = programs.map((path) => path.replace("dist/", "").replace(/js$/, "ts"));
      expect(sources.filter((path) => !existsSync(join(packageFolder, path)))).toEqual([]);
      const text = (path: string) => readFileSync(join(packageFolder, path), "utf8");
      expect(programs.filter((path) => /^\s*(\/\/|\/\*)/m.test(text(path)))).toEqual([]);
      expect(text("dist/lib/index.d.ts")).toContain("/**");
      expect(packaged().filter((path) => /\.(map|png)$/.test(path))).toEqual([]);
    },
  );

  it("has sources that compile to exactly its program files and pages", () => {
    const folder = emptyFolder();
    cpSync(packageFolder, folder, { recursive: true });
    rmSync(join(folder, "dist"), { recursive: true });
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    done("node_modules/.bin/tsc && node_modules/.bin/tsc -p lib/manager/assets", folder);
    const compiled = packaged().filter((path) => /^dist\/.*\.js$/.test(path));
    expect(compiled.length).toBeGreaterThan(200);
    expect(
      compiled.filter((path) => !readFileSync(join(folder, path)).equals(readFileSync(join(packageFolder, path)))),
    ).toEqual([]);
  });

  it("has no file twice", () => {
    const paths = new Map<string, string[]>();
    for (const path of packaged()) {
      const content = readFileSync(join(packageFolder, path));
      const sum = sha256(content);
      // A module of types alone compiles to the empty one.
      if (!["", "export {};\n"].includes(String(content))) paths.set(sum, [...(paths.get(sum) ?? []), path]);
    }
    // A source that only exports what other files have is its own declaration.
    const twice = [...paths.values()].filter(([first, ...others]) =>
      others.some((other) => other !== `dist/${first!.replace(/ts$/, "d.ts")}`),
    );
    expect(twice).toEqual([]);
  });

  it("has nothing that is not committed, and nothing of an earlier build", () => {
    expect(packaged().filter((path) => /notes of bob|left_over/.test(path))).toEqual([]);
  });

  it(
    "has the declarations that its exports need and no others: " + "embedders compile with them, and each is imported",
    () => {
      const folder = emptyFolder();
      mkdirSync(join(folder, "node_modules/@types"), { recursive: true });
      symlinkSync(packageFolder, join(folder, "node_modules/edge-gateway"));
      for (const name of ["@types/node", "undici-types"])
        symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
      writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
      for (const name of ["embed.ts", "custom_plugin.ts"]) cpSync(join(root, "examples", name), join(folder, name));
      const flags =
        "--noEmit --strict --module nodenext --target es2022 --lib es2023 --types node " +
        "--allowImportingTsExtensions --skipLibCheck false";
      const listed = done(
        `"${join(root, "node_modules/.bin/tsc")}" ${flags} --listFiles embed.ts custom_plugin.ts`,
        folder,
      );
      const used = listed
        .split("\n")
        .filter((path) => path.includes("/dist/lib/"))
        .map((path) => path.slice(path.indexOf("dist/lib/")));
      expect(
        packaged()
          .filter((path) => path.endsWith(".d.ts"))
          .sort(),
      ).toEqual(used.sort());
      expect(used.length).toBeGreaterThan(50);
    },
  );

  it("is as large as the documents say, give or take a tenth", () => {
    const sizeOf = (name: string) =>
      name === "the tarball"
        ? released(ada, TARBALL).length
        : filesBelow(join(packageFolder, name)).reduce((sum, path) => sum + readFileSync(path).length, 0);
    const rows = tableUnder("What is in the tarball", document("docs/releases.md"));
    expect(rows.map(([name]) => name)).toEqual(["the tarball", "dist", "lib", "docs", "examples"]);
    const wrong = rows
      .map(([name, shown]) => ({ name, shown: Number(shown), is: sizeOf(name!) }))
      .filter(({ shown, is }) => !(Math.abs(shown - is) <= is / 10));
    expect(wrong).toEqual([]);
  });

  it("says which version it is, as its package.json, its changelog and its name do", () => {
    const printed = execFileSync(process.execPath, [join(packageFolder, "dist/bin/edge-gateway.js"), "--version"], {
      encoding: "utf8",
    }).trim();
    const newest = /^## \[(\d[^\]]*)\]/m.exec(readFileSync(join(packageFolder, "CHANGELOG.md"), "utf8"))![1];
    const manifest = JSON.parse(readFileSync(join(packageFolder, "package.json"), "utf8"));
    expect([newest, manifest.version, basename(TARBALL, ".tgz")]).toEqual([
      printed,
      printed,
      `edge-gateway-${printed}`,
    ]);
  });
});
