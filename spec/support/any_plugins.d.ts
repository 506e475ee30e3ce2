/** Specs use plugins with made-up names and made-up configurations; `spec/types/` is compiled without this file. */
import "edge-gateway";

declare module "edge-gateway" {
  interface CustomPlugins {
    readonly [name: string]: unknown;
  }
}
