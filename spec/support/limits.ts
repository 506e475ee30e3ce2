/** The default limits of a configuration. */
import { configSchema } from "../../lib/config/model.ts";
import type { Limits } from "../../lib/server/limits.ts";
import { checked } from "./exercise.ts";

export const defaultLimits: Limits = checked(configSchema([]), { services: [] }).value!.global.limits;
