/**
 * The commands: what help says of each, its flags, and where its code is. Only the code of the command that runs is
 * loaded.
 */
import {
  CLIENT_TABLE,
  ETCD_TABLE,
  HEALTHCHECK_TABLE,
  MANAGER_TABLE,
  SETTINGS,
  SOURCE_TABLE,
} from "../config/settings_table.ts";
import type { Command } from "./arguments.ts";

const { configPath, configKey } = SETTINGS;
const { configPath: _path, ...sourceWithoutPath } = SOURCE_TABLE;
const withoutFile = Object.fromEntries(Object.entries(SETTINGS).filter(([name]) => !Object.hasOwn(SOURCE_TABLE, name)));
const JSON_FLAG = { json: { value: null, help: "Print JSON." } };

/** In the order in which help lists them. */
export const COMMANDS = {
  run: {
    about: "Start the gateway (also without a command): edge-gateway --config gw.json",
    settings: SETTINGS,
    remedy: "name the configuration with --config FILE",
    load: async () => (await import("./run.ts")).run,
  },
  demo: {
    about: "Start a complete example inside this process, with curl lines to try",
    settings: withoutFile,
    remedy: "the demo has its own configuration",
    load: async () => (await import("./demo.ts")).demo,
  },
  manager: {
    about: "Start the management UI alone, for the admin interface at MANAGER_BACKEND_API_URL",
    settings: MANAGER_TABLE,
    remedy: "name the admin interface with --manager-backend-api-url URL",
    load: async () => (await import("./manager.ts")).manager,
  },
  validate: {
    operand: "[FILE]",
    about: "Check a configuration with the settings of run, run its tests, and report all errors and warnings",
    settings: SETTINGS,
    flags: {
      strict: { value: null, help: "Exit with 2 if there is a warning." },
      settings: { value: "none", help: "none: check the configuration alone, for any settings." },
      ...JSON_FLAG,
    },
    remedy: "name the configuration with --config FILE",
    exits: "0 valid",
    load: async () => (await import("./config_file.ts")).validate,
  },
  test: {
    operand: "[FILE]",
    about: "Run the tests of a configuration; nothing is started or dialled",
    settings: SOURCE_TABLE,
    flags: {
      only: { value: "TEXT", help: "Run only the tests whose names contain this text." },
      ...JSON_FLAG,
      junit: { value: "FILE", help: "Also write the results to this file as JUnit XML." },
    },
    exits: "0 all tests pass, 1 a test fails",
    load: async () => (await import("./test.ts")).test,
  },
  explain: {
    operand: "METHOD URL",
    about:
      "Print which route, plugins and upstreams a request would get, and why; " +
      "with --id what became of one. Nothing is forwarded",
    settings: { ...SOURCE_TABLE, ...CLIENT_TABLE },
    flags: {
      header: {
        value: "'Name: value'",
        letter: "H",
        isRepeated: true,
        help: "A header of the request. May be given several times.",
      },
      from: { value: "IP", help: "The client's address. Default 127.0.0.1." },
      id: {
        value: "ID",
        help: "Instead of METHOD URL: ask the running gateway what became of the request with this X-Request-Id.",
      },
      admin: {
        value: "URL",
        help: "Ask the running gateway whose admin interface is there, as --admin-url. Default: explain by the file.",
      },
      ...JSON_FLAG,
    },
    exits: "0 explained, 1 the gateway cannot be asked, or does not remember the id",
    load: async () => (await import("./explain.ts")).explain,
  },
  diff: {
    operand: "OLD NEW",
    about: "Compare two configurations: guards lost, and routes added, removed and changed",
    settings: sourceWithoutPath,
    flags: JSON_FLAG,
    exits: "0 nothing differs, 1 something differs",
    load: async () => (await import("./diff.ts")).diff,
  },
  compare: {
    operand: "OLD NEW",
    about:
      "Compare what two versions of this program, in the folders OLD and NEW, " +
      "do with one configuration; nothing is dialled",
    settings: { configPath },
    flags: {
      "access-log": {
        value: "FILE",
        help: "Also compare requests of this access log: JSON lines, or the combined format.",
      },
      ...JSON_FLAG,
    },
    exits: "0 nothing differs, 1 something differs, or one version refuses the configuration",
    load: async () => (await import("./compare.ts")).compareVersions,
  },
  publish: {
    operand: "FILE URL",
    about: "Write a configuration to etcd, where gateways get it: checked, tested and compared with what is there",
    settings: { configKey, ...ETCD_TABLE },
    flags: {
      sign: { value: "PEM", help: "File with the private Ed25519 key that signs it." },
      expect: {
        value: "rev:N|DIGEST|0",
        help: "What must be there: this revision of the key, this digest, or no key. Default: what was compared.",
      },
      "dry-run": { value: null, help: "Write nothing, and print what would change." },
      ...JSON_FLAG,
    },
    remedy: "name the key, as CONFIG_FILE_PATH of the gateways has it: etcd://HOST:2379/KEY",
    exits: "0 written, or there already; 1 a test fails, somebody else has written meanwhile, or etcd cannot be asked",
    ifRefused: "nothing was written",
    load: async () => (await import("./publish.ts")).publish,
  },
  fleet: {
    operand: "URL",
    about: "Print what the gateways of a configuration in etcd run, and which have refused it; or wait for them",
    settings: ETCD_TABLE,
    flags: {
      wait: { value: "DIGEST", help: "Wait until all gateways run this configuration." },
      timeout: { value: "SECONDS", help: "The longest time for --wait. Default 60." },
      ...JSON_FLAG,
    },
    remedy: "name the key, as CONFIG_FILE_PATH of the gateways has it: etcd://HOST:2379/KEY",
    exits: "0 printed, or all run it; 1 one has refused it, the time is over, or etcd cannot be asked",
    load: async () => (await import("./fleet.ts")).fleet,
  },
  acme: {
    operand: "rollover",
    about:
      "Replace the key of the account that certificates of global.acme are ordered with, while the gateway is stopped",
    settings: SETTINGS,
    remedy: "name the configuration with --config FILE",
    exits: "0 replaced, 1 the directory cannot be asked, or has refused",
    ifRefused: "no key was replaced",
    load: async () => (await import("./key_rollover.ts")).rollover,
  },
  reload: {
    operand: "[FILE]",
    about:
      "Ask a running gateway to reload its configuration, and print what changed; with --dry-run what would change",
    settings: CLIENT_TABLE,
    flags: {
      "dry-run": {
        value: null,
        help: "Only print whether FILE, or the gateway's own file, would be accepted, and what would change.",
      },
    },
    exits: "0 done, 1 the gateway cannot be asked, or a dry run is refused",
    load: async () => (await import("./reload.ts")).reload,
  },
  healthcheck: {
    about: "Ask the gateway on this machine whether it is ready, as HEALTHCHECK of a container",
    settings: HEALTHCHECK_TABLE,
    flags: {
      live: {
        value: null,
        help: "Ask whether the process answers (/healthz), not whether it accepts requests (/readyz).",
      },
    },
    exits: "0 ready, 1 not ready, or no answer within 3 s",
    load: async () => (await import("./healthcheck.ts")).healthcheck,
  },
  audit: {
    operand: "[FILE]",
    about:
      "Print what a gateway with this configuration and these settings can do: modules, files, ports, servers, secrets",
    settings: SETTINGS,
    flags: {
      ...JSON_FLAG,
      systemd: { value: null, help: "Print directives for a systemd unit." },
      "network-policy": { value: null, help: "Print a Kubernetes NetworkPolicy." },
      permission: { value: null, help: "Print flags of Node's permission model, for the Node that runs this command." },
      evidence: { value: null, help: "Print as JSON which requirements of NIST, OpenSSF, CRA and DISA are met." },
    },
    remedy: "name the configuration with --config FILE",
    exits: "0 printed",
    load: async () => (await import("./audit.ts")).auditWith(async () => (await import("./evidence.ts")).evidenceOf),
  },
  build: {
    about: "Make a package that has only what this configuration and these settings name",
    settings: SETTINGS,
    flags: {
      output: { value: "DIR", help: "The folder of the package; it must be empty, or not be there." },
      with: {
        value: "NAME",
        help: "Also a plugin kind or a feature that nothing names yet. May be given several times.",
        isRepeated: true,
      },
    },
    remedy: "name the configuration with --config FILE",
    exits: "0 built, 1 the folder cannot be written",
    ifRefused: "no package was made",
    further: async (all) => `For --with: ${(await import("./build.ts")).namesForBuild(all).join(", ")}.`,
    load: async () => (await import("./build.ts")).build,
  },
  schema: {
    about: "Print the JSON Schema of the configuration, for editors; with --config FILE also of its plugin modules",
    settings: { configPath, configKey },
    load: async () => (await import("./schema.ts")).schema,
  },
  import: {
    operand: "SOURCE FILE…",
    about: "Make a configuration from openapi, kong or kubernetes files (JSON)",
    settings: {},
    flags: {
      upstream: { value: "URL", help: "openapi: the server that has the API." },
      "check-formats": { value: null, help: 'openapi: check values for "format", too, which is an annotation.' },
      gateway: {
        value: "NAME",
        help: "kubernetes: the Gateway (NAMESPACE/NAME) or ingress class, where there are routes of several.",
      },
      "cluster-domain": {
        value: "DOMAIN",
        help: 'kubernetes: what host names of Services end with behind ".svc", such as cluster.local.',
      },
      output: { value: "FILE", help: "Write the configuration to this file instead of standard output." },
      force: { value: null, help: "Replace the file of --output if it is there." },
      all: {
        value: null,
        help: "List every place of what is not carried over, not only the first three of each kind.",
      },
    },
    exits: "0 a configuration was made",
    load: async () => (await import("./import.ts")).importCommand,
  },
  "hash-password": {
    about: "Read a password from standard input and print its hash for ADMIN_PASSWORD",
    settings: {},
    remedy: "write the password to standard input, since other users could read it on the command line",
    load: async () => (await import("./hash_password.ts")).hashPassword,
  },
  pin: {
    operand: "[FILE]",
    about:
      "Write the SHA-256 of plugin modules, callers and tests into the configuration that names their " +
      "files, once you have read them",
    settings: { configPath },
    exits: "0 the configuration has the digests, 1 it cannot be written",
    load: async () => (await import("./pin.ts")).pin,
  },
  sign: {
    operand: "FILE",
    about:
      "Write the Ed25519 signature of a configuration, with the SHA-256 of its files, " +
      "or of a list of checksums to FILE.sig",
    settings: {},
    flags: {
      key: {
        value: "PEM",
        help: "File with the private Ed25519 key: openssl genpkey -algorithm ed25519 -out private.pem",
      },
    },
    exits: "0 signed, 1 FILE.sig cannot be written",
    load: async () => (await import("./sign.ts")).sign,
  },
  verify: {
    operand: "DIR",
    about: "Check the signature and the checksums of a release, and that its folder has no other files",
    settings: {},
    flags: {
      key: {
        value: "PEM",
        help: "File with the public key, or with several of which one has signed; it must not come with the release.",
      },
    },
    exits: "0 the release is whole and signed, 1 it is not",
    load: async () => (await import("./verify.ts")).verify,
  },
  "verify-log": {
    operand: "FILE…",
    about:
      "Check that an audit log is whole, its files from the oldest on, " +
      "and print its first and last seq and the last line's SHA-256",
    settings: {},
    flags: {
      partial: { value: null, help: "The first line may have another seq than 1: former files are kept elsewhere." },
    },
    exits: "0 whole, 1 broken",
    load: async () => (await import("./verify_log.ts")).verifyLog,
  },
  help: {
    operand: "[COMMAND|CODE]",
    about: "Print this text, the help of one command, or what an error or warning code means and what to do",
    settings: {},
    load: async () => (await import("./help.ts")).help,
  },
} satisfies Readonly<Record<string, Command>>;
