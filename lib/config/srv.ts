/**
 * The schema of `upstream.srv`, and what a service may not have beside it.
 */
import { hostProblem } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const UPSTREAM_SRV = s.string({
  lowerCase: true,
  hint: 'the name of an SRV record, as "_http._tcp.orders.internal"',
  describe: "An SRV record, whose targets are the servers, in place of host and port.",
  check(name) {
    const [, host] = /^_[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\._tcp\.(.+)$/i.exec(name) ?? [];
    if (host === undefined) return 'it begins with the service and the protocol, "_http._tcp."';
    return hostProblem(host) === undefined && name.length <= 253 ? undefined : "no domain follows that is one";
  },
});

interface WithRecords {
  readonly upstreams: readonly { readonly id: string; readonly srv?: string }[];
}

export const fields: FeatureFields = {
  schemas: { upstream_srv: UPSTREAM_SRV },
  checkService({ upstreams }: WithRecords, report) {
    const begins = upstreams.flatMap(({ id, srv }) => (srv === undefined ? [] : `${id}/`));
    upstreams.forEach(({ id }, i) => {
      const begin = begins.find((each) => id.startsWith(each));
      if (begin !== undefined)
        report(`begins as the targets of an SRV record do: "${begin}TARGET:PORT"`, "upstreams", i, "id");
    });
  },
};
