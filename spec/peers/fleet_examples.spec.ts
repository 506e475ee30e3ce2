/** The examples of several gateways against the types of Kubernetes, docker-compose, and the program. */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import { read, root } from "../support/documents.ts";
import { program } from "../support/process.ts";
import { emptyFolder } from "./built.ts";
import { manifestsOf, typeErrors, type Manifest } from "./manifests.ts";
import { readYaml } from "./yaml.ts";

const KUBERNETES = "examples/kubernetes/fleet.yaml";
const COMPOSE = "examples/docker/fleet.yaml";

type Labels = Readonly<Record<string, string>>;
interface Workload extends Manifest {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly replicas: number;
    readonly selector: { readonly matchLabels: Labels };
    readonly template: {
      readonly metadata: { readonly labels: Labels };
      readonly spec: { readonly containers: readonly Container[] };
    };
  };
}
interface Container {
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly volumeMounts?: readonly { readonly mountPath: string }[];
}

describe("the Kubernetes example of a fleet", () => {
  const manifests = manifestsOf(KUBERNETES);
  const workload = (name: string) =>
    manifests.find(
      (each) => "replicas" in ((each as Workload).spec ?? {}) && (each as Workload).metadata.name === name,
    ) as Workload | undefined;
  const gateway = workload("edge-gateway")!;
  const etcd = workload("edge-gateway-etcd")!;
  const [container] = gateway.spec.template.spec.containers as readonly [Container];

  it("has only fields that the API has, of the right types", () => {
    expect(manifests).toHaveLength(10);
    expect(typeErrors(manifests)).toEqual([]);
    const wrong = JSON.stringify(manifests).replace('"serviceName"', '"servicename"');
    expect(typeErrors(JSON.parse(wrong) as Manifest[])).toHaveLength(1);
  });

  it("has settings that the program accepts, and asks the members that the StatefulSet has", () => {
    const result = readSettings(
      {},
      Object.fromEntries(container.env!.map(({ name, value }) => [name, value ?? ""])) as Record<string, string>,
    );
    if (!result.ok) throw new Error(result.issues.join("\n"));
    const { source, stateDir, configKeyPath, serverCertPath } = result.settings;
    const { ports, args = [] } = etcd.spec.template.spec.containers[0]!;
    const client = ports.find(({ name }) => name === "client")!.containerPort;
    const members = Array.from(
      { length: etcd.spec.replicas },
      (_none, i) => `edge-gateway-etcd-${i}.edge-gateway-etcd`,
    );
    expect(source!.url.servers).toEqual(members.map((host) => ({ host, port: client })));
    const peers = args.find((each) => each.startsWith("--initial-cluster="))!;
    for (const [i, host] of members.entries()) expect(peers).toContain(`edge-gateway-etcd-${i}=http://${host}:2380`);
    const mounts = container.volumeMounts!.map(({ mountPath }) => mountPath);
    for (const path of [stateDir!, configKeyPath!, serverCertPath!])
      expect(mounts.some((mount) => path.startsWith(`${mount}/`))).toBe(true);
  });

  it("selects pods that there are, by ports that they have", () => {
    const pods = manifests.filter((each): each is Workload => "template" in ((each as Workload).spec ?? {}));
    for (const { spec } of pods) expect(spec.template.metadata.labels).toEqual(spec.selector.matchLabels);
    const apps = new Map(
      pods.map(({ spec }) => [
        spec.template.metadata.labels.app,
        spec.template.spec.containers[0]!.ports.map(({ name }) => name),
      ]),
    );
    const services = manifests.filter(({ kind }) => kind === "Service") as unknown as readonly {
      readonly spec: { readonly selector: Labels; readonly ports: readonly { readonly targetPort: string }[] };
    }[];
    expect(services).toHaveLength(3);
    for (const { spec } of services)
      for (const { targetPort } of spec.ports) expect(apps.get(spec.selector.app)).toContain(targetPort);
  });
});

describe("the Compose example of a fleet", () => {
  interface Composed {
    readonly services: Readonly<Record<string, { readonly environment?: Readonly<Record<string, string>> } & Locked>>;
  }
  interface Locked {
    readonly read_only?: boolean;
    readonly cap_drop?: readonly string[];
    readonly security_opt?: readonly string[];
    readonly ports?: readonly string[];
    readonly command?: readonly string[];
  }

  function composed() {
    const folder = emptyFolder();
    cpSync(`${root}/examples`, folder, { recursive: true });
    mkdirSync(join(folder, "docker/secrets"), { recursive: true });
    for (const name of ["public.pem", "private.pem"]) writeFileSync(join(folder, "docker/secrets", name), "");
    const words = ["-f", join(folder, "docker/fleet.yaml"), "--profile", "tools", "config"];
    const { status, stdout, stderr } = spawnSync("docker-compose", words, { encoding: "utf8" });
    if (status !== 0) throw new Error(stderr);
    return (readYaml(stdout) as Composed[])[0]!;
  }

  it("is accepted by docker-compose, and no container may write to its image or gain privileges", () => {
    const { services } = composed();
    for (const [name, { read_only, cap_drop, security_opt }] of Object.entries(services))
      expect([name, read_only, cap_drop, security_opt]).toEqual([name, true, ["ALL"], ["no-new-privileges:true"]]);
    const opened = Object.keys(services).filter((name) => services[name]!.ports !== undefined);
    expect(opened.sort()).toEqual(["gateway-a", "gateway-b", "gateway-c"]);
  });

  it("has settings that the program accepts, and one key of the same members for gateways and tools", () => {
    const { services } = composed();
    const urls = new Set(
      ["gateway-a", "gateway-b", "gateway-c"].map((name) => services[name]!.environment!.CONFIG_FILE_PATH),
    );
    for (const name of ["publish", "fleet"])
      urls.add(services[name]!.command!.find((word) => word.startsWith("etcd://"))!);
    expect(urls.size).toBe(1);
    const result = readSettings({}, services["gateway-a"]!.environment!);
    if (!result.ok) throw new Error(result.issues.join("\n"));
    expect(result.settings.source!.url.servers.map(({ host }) => host)).toEqual(["etcd0", "etcd1", "etcd2"]);
    expect(read(COMPOSE)).toContain("fleet/gw.json");
  });

  it("publishes a configuration that is valid", async () => {
    const { ended } = program(["validate", "--settings", "none", `${root}/examples/docker/fleet/gw.json`]);
    const { code, stderr } = await ended;
    expect([code, stderr]).toEqual([0, ""]);
  });
});
