package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;

/** The arrays of a file for numpy, by name. */
public record Npz(Map<String, Npy> arrays) {
  private static final Pattern HEADER =
      Pattern.compile(
          "\\{'descr': '([^']+)', 'fortran_order': False, 'shape': \\(([0-9, ]*)\\), } *\n");

  /** One array. */
  public record Npy(String descr, String shape, ByteBuffer data) {
    /** Its type and shape. */
    public String kind() {
      return descr + " [" + shape + "]";
    }

    /** Its numbers, which are f4. */
    public float[] floats() {
      assertEquals("<f4", descr);
      float[] floats = new float[data.remaining() / Float.BYTES];
      data.asFloatBuffer().get(floats);
      return floats;
    }
  }

  /** The array of that name, which is there. */
  public Npy get(String name) {
    return Objects.requireNonNull(arrays.get(name), name);
  }

  /** Reads as the NPY 1.0 specification says, sharing nothing with the writer. */
  public static Npz read(Path file) throws IOException {
    Map<String, Npy> arrays = new LinkedHashMap<>();
    try (ZipFile zip = new ZipFile(file.toFile())) {
      for (ZipEntry entry : zip.stream().toList()) {
        assertEquals(ZipEntry.STORED, entry.getMethod());
        ByteBuffer all =
            ByteBuffer.wrap(zip.getInputStream(entry).readAllBytes())
                .order(ByteOrder.LITTLE_ENDIAN);
        byte[] magic = new byte[8];
        all.get(magic);
        assertArrayEquals(new byte[] {(byte) 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0}, magic);
        byte[] header = new byte[all.getShort()];
        all.get(header);
        assertEquals(0, all.position() % 64);
        Matcher dict = HEADER.matcher(new String(header, StandardCharsets.ISO_8859_1));
        assertTrue(dict.matches(), dict.toString());
        arrays.put(
            entry.getName().replace(".npy", ""),
            new Npy(dict.group(1), dict.group(2), all.slice().order(ByteOrder.LITTLE_ENDIAN)));
      }
    }
    return new Npz(arrays);
  }
}
