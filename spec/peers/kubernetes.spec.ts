/**
 * The Kubernetes example against the API's own types, and against the program: its settings, ports and configuration.
 */
import { describe, expect, it } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import type { ConfigInput } from "../../lib/index.ts";
import { read } from "../support/documents.ts";
import { manifestsOf, typeErrors, type Manifest } from "./manifests.ts";

const FILE = "examples/kubernetes/edge-gateway.yaml";
/**
 * The parts that are compared here; whether the manifests have the types of the API is checked with the types of
 * `kubernetes-types`.
 */
type Labels = Readonly<Record<string, string>>;
interface Selector {
  readonly matchLabels: Labels;
}
interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}
interface Pod {
  readonly [field: string]: unknown;
  readonly containers: readonly Container[];
  readonly securityContext: { readonly runAsUser: number; readonly runAsGroup: number };
  readonly topologySpreadConstraints: readonly { readonly topologyKey: string; readonly labelSelector: Selector }[];
}
interface Container {
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string }[];
  readonly volumeMounts: readonly { readonly mountPath: string }[];
  readonly resources: object;
  readonly securityContext: object;
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
}
interface Passage {
  readonly from?: readonly object[];
  readonly to?: readonly object[];
  readonly ports: readonly { readonly port: string | number }[];
}

const manifests = manifestsOf(FILE);
const deployment = ofKind<{ selector: Selector; template: { metadata: { labels: Labels }; spec: Pod } }>("Deployment");
const service = ofKind<{ selector: Labels; ports: readonly { targetPort: string }[] }>("Service");
const policy = ofKind<{
  podSelector: Selector;
  policyTypes: readonly string[];
  ingress: readonly Passage[];
  egress: readonly Passage[];
}>("NetworkPolicy");
const budget = ofKind<{ selector: Selector }>("PodDisruptionBudget");
const pod = deployment.template.spec;
const [container] = pod.containers as readonly [Container];
const written = manifests.find(({ kind }) => kind === "ConfigMap") as unknown as {
  readonly data: Readonly<Record<string, string>>;
};
const config = JSON.parse(written.data["gw.json"]!) as ConfigInput;

/** The specification of the manifest of this kind. */
function ofKind<T>(kind: string): T {
  return (manifests.find((each) => each.kind === kind) as unknown as { readonly spec: T }).spec;
}

describe("the Kubernetes example", () => {
  it("the Kubernetes example has only fields that the API has, of the right types", () => {
    expect(manifests.map(({ kind }) => kind)).toEqual([
      "ConfigMap",
      "Deployment",
      "Service",
      "PodDisruptionBudget",
      "NetworkPolicy",
    ]);
    expect(typeErrors(manifests)).toEqual([]);
  });

  it.each([
    ['"readOnlyRootFilesystem"', '"readOnlyRootFs"'],
    ['"replicas":2', '"replicas":"2"'],
    ['"selector":{"matchLabels":{"app":"edge-gateway"}},"strategy"', '"strategy"'],
    ['"maxUnavailable":1', '"maxUnavailabel":1'],
    ['"policyTypes"', '"policytypes"'],
  ])("this check finds the mistake %s → %s", (right, wrong) => {
    const text = JSON.stringify(manifests);
    expect(text).toContain(right);
    expect(typeErrors(JSON.parse(text.replace(right, wrong)) as Manifest[])).toHaveLength(1);
  });

  it(
    "the program accepts the environment of the container: HTTPS, probes beyond the pod, " +
      "an admin interface on loopback",
    () => {
      const entries = container.env.map(({ name, value }) => [name, value ?? "a-secret-of-the-cluster"]);
      const result = readSettings({}, Object.fromEntries(entries) as Record<string, string>);
      if (!result.ok) throw new Error(result.issues.join("\n"));
      const { probe, metricsToken, admin, manager, serverCertPath, httpPort, httpsPort } = result.settings;
      expect([probe!.host, metricsToken]).toEqual(["0.0.0.0", "a-secret-of-the-cluster"]);
      expect([admin!.host, manager!.host]).toEqual(["127.0.0.1", "127.0.0.1"]);
      expect(container.ports).toEqual([
        { name: "http", containerPort: httpPort },
        { name: "https", containerPort: httpsPort },
        { name: "probes", containerPort: probe!.port },
      ]);
      const mounts = container.volumeMounts.map(({ mountPath }) => mountPath);
      for (const path of [result.settings.configPath, serverCertPath!])
        expect(mounts.some((mount) => path.startsWith(`${mount}/`))).toBe(true);
    },
  );

  it("the probes ask the port for probes, and the pod is given more time to end than the gateway takes", () => {
    const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe].map((each) => [
      each.httpGet.path,
      each.httpGet.port,
    ]);
    expect(probes).toEqual([
      ["/readyz", "probes"],
      ["/healthz", "probes"],
      ["/readyz", "probes"],
    ]);
    const seconds = (name: string) => Number(container.env.find((each) => each.name === name)!.value);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(
      seconds("PRE_STOP_DELAY_S") + seconds("SHUTDOWN_GRACE_S") + 5,
    );
  });

  it("the pod may do nothing that it does not need, and is spread over nodes and zones", () => {
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
    expect([pod.automountServiceAccountToken, pod.enableServiceLinks]).toEqual([false, false]);
    expect(container.resources).toMatchObject({
      requests: { cpu: expect.any(String) as string, memory: expect.any(String) as string },
      limits: { memory: expect.any(String) as string },
    });
    expect(pod.topologySpreadConstraints.map(({ topologyKey }) => topologyKey)).toEqual([
      "kubernetes.io/hostname",
      "topology.kubernetes.io/zone",
    ]);
    // The user of the image.
    expect(read("examples/docker/Dockerfile")).toContain(
      `USER ${pod.securityContext.runAsUser}:${pod.securityContext.runAsGroup}\n`,
    );
  });

  it("every selector finds the pods of the Deployment, and every port that is named exists", () => {
    const labels = deployment.template.metadata.labels;
    const spread = pod.topologySpreadConstraints.map(({ labelSelector }) => labelSelector.matchLabels);
    const selectors = [
      deployment.selector.matchLabels,
      service.selector,
      budget.selector.matchLabels,
      policy.podSelector.matchLabels,
      ...spread,
    ];
    expect(selectors).toEqual(selectors.map(() => labels));
    const ingress = policy.ingress.flatMap(({ ports }) => ports);
    const used = [...service.ports.map(({ targetPort }) => targetPort), ...ingress.map(({ port }) => port)];
    expect(used.filter((name) => !container.ports.some((port) => port.name === name))).toEqual([]);
  });

  it(
    "the NetworkPolicy lets clients reach the ports for traffic, monitoring the metrics, " +
      "and the pods nothing but name servers and upstreams",
    () => {
      const { ingress, egress, policyTypes } = policy;
      expect(policyTypes).toEqual(["Ingress", "Egress"]);
      expect(
        ingress.filter(({ from }) => from === undefined).flatMap(({ ports }) => ports.map(({ port }) => port)),
      ).toEqual(["http", "https"]);
      expect(egress.every(({ to }) => to !== undefined && to.length > 0)).toBe(true);
      const upstreams = config.services.flatMap(({ upstreams }) =>
        upstreams.flatMap((upstream) => ("srv" in upstream ? [] : upstream.port)),
      );
      expect(egress.flatMap(({ ports }) => ports.map(({ port }) => port))).toEqual([53, 53, ...upstreams]);
    },
  );
});
