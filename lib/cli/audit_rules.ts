/**
 * Prints an audit as rules that other programs enforce: flags of Node's permission model, systemd directives, and a
 * Kubernetes NetworkPolicy.
 */
import { isIP } from "node:net";
import { dirname } from "node:path";
import type { Destination } from "../base/egress.ts";
import { addressOf } from "../base/ip_address.ts";
import { isLoopback } from "../base/url_destination.ts";
import type { Audited, AuditedDial } from "./audit_sources.ts";
import { Failure } from "./failure.ts";
import { withoutControls } from "./terminal.ts";
import { readable } from "./touched_files.ts";

/**
 * For the Node that runs this command: one flag on each line. Throws a `Failure` for a path that a flag cannot have.
 */
export function permissionFlags({ audit, settings, watched, patterns }: Audited): string {
  const known = process.allowedNodeEnvironmentFlags;
  const flags = [
    known.has("--permission") ? "--permission" : "--experimental-permission",
    ...allow("read", readable({ ...audit, watched }), patterns),
    ...allow("write", audit.writes, patterns),
    // Dry runs of the admin interface have a thread of their own.
    ...(settings.workers === 1 && settings.admin === null ? [] : ["--allow-worker"]),
    // Since Node 25 the model covers connections, too.
    ...(known.has("--allow-net") ? ["--allow-net"] : []),
  ];
  return `${flags.join("\n")}\n`;
}

function allow(access: "read" | "write", paths: readonly string[], patterns: readonly string[]): string[] {
  return [...new Set(paths)].map((path) => {
    // An asterisk at the end has the same meaning for Node.
    const literal = patterns.includes(path) ? path.slice(0, -1) : path;
    if (/[\s,*"'\\]/.test(literal))
      throw new Failure(
        `${JSON.stringify(path)} cannot be named in --allow-fs-${access}: rename it, without spaces, commas, ` +
          `quotes, backslashes and asterisks`,
        2,
      );
    return `--allow-fs-${access}=${path}`;
  });
}

/** A drop-in for the [Service] section of a unit. */
export function systemdUnit({ audit: { writes, listens, dials: all } }: Audited): string {
  const dials = all.filter(isDirect);
  const folders = [...new Set(writes.map(dirname))];
  const ports = [...new Set(listens.map(({ port }) => (port === 0 ? "tcp" : `tcp:${port}`)))];
  const servers = [...new Set(dials.map(({ host }) => host))];
  const isClosed = listens.every(({ host }) => isLoopback(host)) && servers.every((host) => isIP(host) !== 0);
  return lines([
    "# By edge-gateway audit --systemd; print it again when configuration or settings change.",
    "[Service]",
    "ProtectSystem=strict",
    ...folders.map((folder) => `ReadWritePaths=${unitWord(folder)}`),
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "SocketBindDeny=any",
    ...ports.map((port) => `SocketBindAllow=${port}`),
    ...(listens.some(({ port }) => port > 0 && port < 1024)
      ? ["AmbientCapabilities=CAP_NET_BIND_SERVICE", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"]
      : []),
    ...dials.map((to) => `# Connects to ${serverOf(to)}.`),
    ...(isClosed
      ? ["IPAddressDeny=any", `IPAddressAllow=${["localhost", ...servers].join(" ")}`]
      : [
          "# IPAddressAllow= holds for clients and servers alike, and takes no names: " +
            "add it with the addresses of both.",
        ]),
  ]);
}

/** What lies behind a proxy needs no rule. */
function isDirect({ via }: AuditedDial): boolean {
  return via === undefined;
}

/** systemd.syntax(7): a word with white space, quotes or backslashes is quoted; "%" begins a specifier. */
function unitWord(text: string): string {
  const escaped = text.replaceAll("%", "%%");
  return /[\s"'\\]/.test(text) ? `"${escaped.replace(/["\\]/g, "\\$&")}"` : escaped;
}

/** For pods with the label app: edge-gateway. Listeners on the loopback interface need no rule. */
export function networkPolicy({ audit: { listens, dials: all } }: Audited): string {
  const dials = all.filter(isDirect);
  const open = listens.filter(({ host }) => !isLoopback(host));
  const probes = open.filter(({ why }) => why === "probes");
  const operators = open.filter(({ why }) => why === "admin" || why === "manager");
  const traffic = open.filter((each) => !probes.includes(each) && !operators.includes(each));
  const servers = new Map<string, Destination[]>();
  for (const dial of dials)
    if (dial.why !== "dns")
      servers.set(`${dial.host} ${dial.port}`, [...(servers.get(`${dial.host} ${dial.port}`) ?? []), dial]);
  const remote = [...servers.values()].filter(([first]) => !isLoopback(first!.host));
  const hasNames = dials.some(({ why }) => why === "dns");
  return lines([
    "# By edge-gateway audit --network-policy; print it again when configuration or settings change.",
    "apiVersion: networking.k8s.io/v1",
    "kind: NetworkPolicy",
    "metadata:",
    "  name: edge-gateway",
    "spec:",
    "  podSelector:",
    "    matchLabels: { app: edge-gateway }",
    "  policyTypes: [Ingress, Egress]",
    open.length === 0 ? "  ingress: []" : "  ingress:",
    ...(traffic.length === 0 ? [] : ["    - ports:", ...portsOf(traffic)]),
    ...(operators.length === 0
      ? []
      : [
          OPERATORS,
          ...peers("from", ["podSelector: { matchLabels: { app: edge-gateway-operator } }"]),
          "      ports:",
          ...portsOf(operators),
        ]),
    ...(probes.length === 0 ? [] : [...peers("from", [namespace("monitoring")]), "      ports:", ...portsOf(probes)]),
    remote.length === 0 && !hasNames ? "  egress: []" : "  egress:",
    ...(hasNames ? DNS : []),
    ...remote.flatMap(ruleOf),
  ]);
}

const OPERATORS =
  "    # Pods of this namespace with this label alone: change it to those that may operate the gateway.";

function ruleOf(dials: readonly Destination[]): string[] {
  const { host, port, srv } = dials[0]!;
  const comment = `    # ${serverOf({ ...dials[0]!, why: dials.map(({ why }) => why).join(", ") })}.`;
  const ports = ["      ports:", `        - { port: ${port} }`];
  if (srv === true)
    return [
      comment,
      "    # Its targets are not known here: this rule is for all hosts and ports. " +
        'Add "to" and "ports" where you know them.',
      "    - {}",
    ];
  if (isIP(host) !== 0)
    return [comment, ...peers("to", [`ipBlock: { cidr: "${host}/${isIP(host) === 4 ? 32 : 128}" }`]), ...ports];
  const [, service, space] = /^([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.|$)/.exec(host) ?? [];
  // Only a cluster knows the labels and the ports of the pods behind a Service: those of the name are the usual ones.
  if (service !== undefined)
    return [
      comment,
      ...peers("to", [namespace(space!), `podSelector: { matchLabels: { app: ${service} } }`]),
      ...ports,
    ];
  return [
    comment,
    '    # A policy takes no host names: this rule is for all hosts. Add "to" where you know the addresses.',
    "    - ports:",
    ports[1]!,
  ];
}

const DNS = [
  ...peers("to", [namespace("kube-system"), "podSelector: { matchLabels: { k8s-app: kube-dns } }"]),
  "      ports:",
  "        - { port: 53, protocol: UDP }",
  "        - { port: 53, protocol: TCP }",
];

function peers(key: "from" | "to", [first, ...more]: readonly string[]): string[] {
  return [`    - ${key}:`, `        - ${first}`, ...more.map((line) => `          ${line}`)];
}

function namespace(name: string): string {
  return `namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: ${name} } }`;
}

function portsOf(listens: readonly Destination[]): string[] {
  return [...new Map(listens.map(({ port, why }) => [port, why]))].map(
    ([port, why]) => `        - { port: ${port} } # ${why}`,
  );
}

/** "10.0.0.5:80 (upstream)" */
function serverOf(destination: Destination): string {
  return `${destinationText(destination)} (${destination.why})`;
}

/** "10.0.0.5:80", "the targets of _http._tcp.orders.internal" */
export function destinationText(to: Destination): string {
  return to.srv === true ? `the targets of ${to.host}` : addressOf(to);
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${withoutControls(text)}\n`).join("");
}
