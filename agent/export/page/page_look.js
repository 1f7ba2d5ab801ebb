/* How values and modules look. Pure functions. */

const SCALES = {
    nanoseconds: [[1, "ns"], [1e3, "\u00b5s"], [1e6, "ms"], [1e9, "s"], [6e10, "min"], [3.6e12, "h"]],
    bytes: [[1, "B"], [1024, "KiB"], [1048576, "MiB"], [1073741824, "GiB"], [1099511627776, "TiB"]],
};
/* A minute is named as such from two on, an hour too: 90 s is read better than 1.5 min. */
const CALLED_FROM = { min: 2, h: 2 };

function grouped(number) {
    return number.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/* Three digits, as many as a reader compares. */
function digits(number) {
    const size = Math.abs(number);
    return size >= 99.95 ? number.toFixed(0) : size >= 9.995 ? number.toFixed(1) : number.toFixed(2);
}

function valueText(value, unit) {
    const scale = SCALES[unit];
    if (!scale) {
        const name = unit === "count" ? "" : ` ${unit}`;
        return grouped(value) + name;
    }
    if (value === 0) {
        return "0";
    }
    let chosen = scale[0];
    for (const step of scale) {
        /* What would be rounded up to the next step is written in it: 1.00 ms, not 1000 us. */
        if (Math.abs(value) >= 0.9995 * step[0] * (CALLED_FROM[step[1]] ?? 1)) {
            chosen = step;
        }
    }
    const text = chosen[0] === 1 ? value.toFixed(0) : digits(value / chosen[0]);
    return `${text} ${chosen[1]}`;
}

function shareText(value, whole) {
    if (whole === 0 || value === 0) {
        return "";
    }
    const share = (100 * value) / whole;
    const size = Math.abs(share);
    if (size < 0.005) {
        return "<0.01 %";
    }
    return `${share.toFixed(size >= 99.95 ? 0 : size < 9.995 ? 2 : 1)} %`;
}

function hash(text) {
    let value = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) {
        value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
    }
    /* FNV's low bits are what differs; the others are spread before they choose. */
    value ^= value >>> 15;
    value = Math.imul(value, 0x2c1b3c6d);
    return (value ^ (value >>> 12)) >>> 0;
}

/* Lightness, chroma and hue as people see them (OKLCH) to sRGB: equal lightness keeps names readable on
 * each hue. The matrices are those of Bjorn Ottosson's definition. */
function colourOf(lightness, chroma, hue) {
    const a = chroma * Math.cos((hue * Math.PI) / 180);
    const b = chroma * Math.sin((hue * Math.PI) / 180);
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    const channels = [
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ].map((linear) => {
        const bound = Math.min(1, Math.max(0, linear));
        const encoded = bound <= 0.0031308 ? 12.92 * bound : 1.055 * bound ** (1 / 2.4) - 0.055;
        return Math.round(255 * encoded);
    });
    return `rgb(${channels.join(",")})`;
}

/* Libc is in nearly each profile: it has a hue to itself, so that no other is taken for it. */
const LIBC_HUE = 250;
const HUES = [55, 150, 310, 90, 195, 25, 120, 280, 340, 170, 72];

function hueOf(module) {
    return /^libc[.-]/.test(module) ? LIBC_HUE : HUES[hash(module) % HUES.length];
}

/* Functions of a module differ a little in lightness, so that neighbours are told apart. */
function frameColour(func, dark) {
    const shade = ((hash(func.name) % 7) - 3) * 0.008;
    if (func.isHead) {
        return dark ? "rgb(124,131,146)" : "rgb(214,218,226)";
    }
    const chroma = func.module === "" ? 0.012 : dark ? 0.1 : 0.095;
    return colourOf((dark ? 0.67 : 0.83) + shade, chroma, func.module === "" ? 260 : hueOf(func.module));
}

function moduleColour(module, dark) {
    return frameColour({ name: "", module }, dark);
}

function baseName(path) {
    return path.slice(path.lastIndexOf("/") + 1);
}

/* Where a function is, in one line. */
function placeText(func) {
    const line = func.file && (func.line ? `${func.file}:${func.line}` : func.file);
    return [func.module, line, func.inlined ? "inlined" : ""].filter(Boolean).join(" \u00b7 ");
}
