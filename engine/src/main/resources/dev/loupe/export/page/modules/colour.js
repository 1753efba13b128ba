// From values to colours. A pixel of a map is its palette's colour at the value, nothing between.

const SIZE = 1024;

let theme = 'light', palettes = null, tables = {};

/** Sets how the page looks: {theme: 'light' or 'dark'}, {palettes: {light: [stops, diverging stops], dark}}. */
export function dress(look) {
  if (look.theme) theme = look.theme;
  if (look.palettes) [palettes, tables] = [look.palettes, {}];
}

/** The colours of a palette, as #rrggbb at even distances. */
export const stopsOf = diverging => palettes[theme][diverging ? 1 : 0];

/** The colour at a position 0 to 1 between stops, mixed in sRGB; a pixel, little-endian RGBA. */
export function mix(stops, position) {
  const place = Math.max(0, Math.min(position, 1)) * (stops.length - 1), below = Math.min(Math.floor(place), stops.length - 2);
  const from = parseInt(stops[below].slice(1), 16), to = parseInt(stops[below + 1].slice(1), 16);
  const part = shift => {
    const a = from >> shift & 255, b = to >> shift & 255;
    return Math.round(a + (place - below) * (b - a));
  };
  return (255 << 24 | part(0) << 16 | part(8) << 8 | part(16)) >>> 0;
}

/** The colour at a position 0 to 1 of the page's palette; of a difference, 0.5 is none. */
export function colourAt(position, diverging = false) {
  const table = tables[theme + diverging] ??= Uint32Array.from({ length: SIZE }, (_, i) => mix(stopsOf(diverging), i / (SIZE - 1)));
  return table[Math.round((SIZE - 1) * Math.max(0, Math.min(position || 0, 1)))];
}

/** Where a weight, or a difference of weights, lies in its palette; largest is the end of scale 'head'. */
export function position(w, diverging, scale, largest = 1) {
  const size = Math.abs(w), part = Math.min(1, scale === 'sqrt' ? Math.sqrt(size) : scale === 'head' ? size / largest : size);
  return diverging ? 0.5 + Math.sign(w) * part / 2 : part;
}

const variables = new Map();
/** A colour of the style sheet by its variable; kept, as asking makes the browser settle the page's styles. */
export function css(name) {
  const key = theme + name;
  if (!variables.has(key)) variables.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return variables.get(key);
}
/** #rrggbb as a pixel. */
export function pixel(colour) {
  const n = parseInt(colour.slice(1), 16);
  return (255 << 24 | (n & 255) << 16 | (n & 0xff00) | n >> 16) >>> 0;
}
export const fill = c => `#${[c & 255, c >> 8 & 255, c >> 16 & 255].map(v => v.toString(16).padStart(2, '0')).join('')}`;

/** Black or white text, whichever reads better on the colour. */
export function inkOn(c) {
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(c & 255) + 0.7152 * linear(c >> 8 & 255) + 0.0722 * linear(c >> 16 & 255);
  return light > 0.179 ? '#000000' : '#ffffff';
}
