/**
 * What `backup` of upstreams may say together.
 */
import type { FeatureFields } from "./feature_fields.ts";
import type { Service } from "./model.ts";

export const fields: FeatureFields = {
  schemas: {},
  checkService({ upstreams, split = [] }: Service, report) {
    const primaries = upstreams.filter(({ backup }) => backup !== true);
    if (primaries.length === 0)
      report("are all backups: one of them has to get the requests that they are a backup for", "upstreams");
    split.forEach(({ group }, i) => {
      const isOf = (each: { readonly group?: string }) => each.group === group;
      if (upstreams.some(isOf) && !primaries.some(isOf))
        report("is a group of backups alone, which get no share", "split", i, "group");
    });
  },
};
