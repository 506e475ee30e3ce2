/**
 * The frame of the application: starts it, and shows the page that the address names.
 */
import { el } from "./dom.ts";

document.body.append(el("main", {}, "edge-gateway"));
