/**
 * The schemas of `upstream_path`: of a service a prefix, of a route a template.
 */
import { pathSchema } from "./fields.ts";

export const SERVICE_PATH = pathSchema("Put before the path that upstreams are asked for.");
export const ROUTE_PATH = pathSchema(
  "The path that upstreams are asked for, in place of the route's own; {name} stands for a parameter.",
);
