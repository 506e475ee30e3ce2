/** A configuration from a URL is in no folder: all names of files in it are absolute. */
import { describe, expect, it } from "vitest";
import { atOnce } from "../../lib/base/time_slices.ts";
import { givenText, type SourceText } from "../../lib/config/text_source.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { ConfigError } from "../../lib/gateway/config_error.ts";
import { ConfigReader } from "../../lib/gateway/config_reader.ts";
import { oneService } from "../support/gateway.ts";

const SHA = "0".repeat(64);
const URL_NAME = "https://config.example.com/gw.json";

/** The problems of a configuration from a URL; each file that it names can be read. */
function problems(config: object): string {
  const received: SourceText = { text: Buffer.from(JSON.stringify(config)), signature: null, revision: null };
  const reader = new ConfigReader(
    {
      configFile: URL_NAME,
      textSource: givenText(URL_NAME, received),
      modules: withAllFeatures(),
      https: true,
    },
    () => Buffer.from("[]"),
  );
  try {
    atOnce(reader.loadSteps(reader.source()));
    return "";
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
}

const global = (fields: object) => oneService(9, {}, fields);
const RELATIVE =
  /is relative to the folder of the configuration, which is from a URL and has none: write the absolute path/;

describe("a configuration from a URL", () => {
  it.each<[string, (path: string) => object]>([
    ["global.access_log.file", (file) => global({ access_log: { file } })],
    ["global.certificates", (cert) => global({ certificates: [{ hosts: ["a.example"], cert, key: "/k.pem" }] })],
    [
      "the key of global.certificates",
      (key) => global({ certificates: [{ hosts: ["a.example"], cert: "/c.pem", key }] }),
    ],
    ["global.tls.client_crl", (path) => global({ tls: { client_crl: path } })],
    ["global.plugin_modules", (path) => global({ plugin_modules: [{ path, sha256: SHA }] })],
    ["test_files", (path) => ({ ...oneService(9), test_files: [path] })],
    ["test_files with a digest", (path) => ({ ...oneService(9), test_files: [{ path, sha256: SHA }] })],
    ["caller_files", (path) => ({ ...oneService(9), caller_files: [path] })],
    ["tls.ca of a service", (ca) => oneService(9, { protocol: "https", tls: { ca } })],
    ["tls.cert of a service", (cert) => oneService(9, { protocol: "https", tls: { cert, key: "/k.pem" } })],
    ["tls.crl of a service", (crl) => oneService(9, { protocol: "https", tls: { crl } })],
    ["a reference", (path) => oneService(9, { plugins: [{ name: "key_auth", config: { key: `\${file:${path}}` } }] })],
  ])("refuses a relative name in %s, and not an absolute one", (_where, config) => {
    expect(problems(config("folder/file.pem"))).toMatch(RELATIVE);
    expect(problems(config("./file.pem"))).toMatch(RELATIVE);
    expect(problems(config("/folder/file.pem"))).not.toMatch(RELATIVE);
  });
});
