/**
 * Reads the URL of a configuration that is not in a file of this machine: of an HTTP server, or of a key in etcd.
 */
import { DEFAULT_PORTS, isLoopback } from "../base/url_destination.ts";
import { hostProblem } from "./fields.ts";

/** "https://config.example.com/gw.json", "etcd://10.0.0.1:2379,10.0.0.2:2379/edge/gw.json". */
export interface SourceUrl {
  readonly scheme: "http" | "https" | "etcd" | "etcds";
  /** As it is asked. */
  readonly href: string;
  /** For messages: without the query, which may be a secret. */
  readonly name: string;
  /** Without brackets. Of HTTP one; of etcd its members, at least one. */
  readonly servers: readonly { readonly host: string; readonly port: number }[];
  /** Of etcd: what is behind the first slash after the servers, "edge/gw.json"; of HTTP path and query. */
  readonly path: string;
  /** Whether all servers are this machine. */
  readonly isLocal: boolean;
}

const SCHEME = /^(https?|etcds?):\/\//i;
const FORMS = "expected https://…, http://…, etcds://… or etcd://…, or the path of a file";
const ETCD_PORT = 2379;

/** The parts of a URL, or why it is refused. */
export function sourceUrl(text: string): SourceUrl | string {
  const scheme = SCHEME.exec(text)?.[1]!.toLowerCase() as SourceUrl["scheme"] | undefined;
  if (scheme === undefined) return FORMS;
  if (/[^!-~]/.test(text)) return "has a character that a URL cannot have: write it as %XX of its UTF-8";
  return scheme === "http" || scheme === "https" ? httpUrl(scheme, text) : etcdUrl(scheme, text);
}

function httpUrl(scheme: "http" | "https", text: string): SourceUrl | string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null) return "is not a URL";
  if (url.username !== "" || url.password !== "")
    return "has a user or a password, which messages would repeat: name a file with a token in CONFIG_TOKEN_FILE";
  if (text.includes("#")) return "has a fragment (#…), which no server gets";
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = Number(url.port || DEFAULT_PORTS[url.protocol]);
  return {
    scheme,
    href: url.href,
    name: url.search === "" ? url.href : `${url.origin}${url.pathname}?…`,
    servers: [{ host, port }],
    path: url.pathname + url.search,
    isLocal: isLoopback(host),
  };
}

function etcdUrl(scheme: "etcd" | "etcds", text: string): SourceUrl | string {
  const [, authority = "", key = ""] = /^[^:]+:\/\/([^/]*)(?:\/(.*))?$/s.exec(text) ?? [];
  if (authority.includes("@"))
    return "has a user or a password, which messages would repeat: set ETCD_USER and ETCD_PASSWORD_FILE";
  if (/[?#]/.test(text)) return "has a query or a fragment: a character of the key is written as %3F or %23";
  const path = decoded(key);
  if (path === null) return "has a % in its key that is not followed by two hex digits of UTF-8";
  if (path === "") return `names no key: ${scheme}://HOST:${ETCD_PORT}/KEY`;
  if (path.endsWith(".sig") || path.includes("/gateways/"))
    return "names a key that belongs to another one: its signature (….sig), or an entry of a gateway (…/gateways/…)";
  const servers: { readonly host: string; readonly port: number }[] = [];
  for (const member of authority.split(",")) {
    const [, host = "", port = String(ETCD_PORT)] = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(member) ?? [];
    const bare = host.replace(/^\[|\]$/g, "");
    if (hostProblem(bare) !== undefined || Number(port) < 1 || Number(port) > 65_535)
      return `names its servers as HOST:PORT, separated by commas, and "${member}" is none`;
    servers.push({ host: bare, port: Number(port) });
  }
  const href = `${scheme}://${authority}/${key}`;
  return { scheme, href, name: href, servers, path, isLocal: servers.every(({ host }) => isLoopback(host)) };
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
