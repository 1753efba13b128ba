package dev.loupe.cuda.probe;

import dev.loupe.cuda.ptx.Module;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;

/**
 * What nvcc made of probes.cu for a virtual architecture: a resource of the tests, so that they
 * need no nvcc. Its first line has the hash of the sources.
 */
record ProbePtx(String target) {
  static final List<ProbePtx> ALL = List.of(new ProbePtx("compute_75"), new ProbePtx("compute_80"));

  /** Where probes.cu is, and where the headers are that it includes. */
  static final Path PROBES = Path.of("src", "test", "cuda");

  static final Path HEADERS = Path.of("src", "main", "cuda");

  private static final String HASH = "// sha256 of probes.cu, element.cuh and gpu.cuh: ";

  String fileName() {
    return "probes." + target + ".ptx";
  }

  Module module() {
    return Module.parse(text());
  }

  /** The file. */
  String text() {
    try (InputStream in = ProbePtx.class.getResourceAsStream(fileName())) {
      return new String(
          Objects.requireNonNull(in, fileName()).readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** What the file should be, from the PTX that nvcc made. */
  static String file(String ptx) {
    return HASH + hash() + "\n" + ptx;
  }

  static boolean isOfTheseSources(String file) {
    return file.startsWith(HASH + hash() + "\n");
  }

  private static String hash() {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(Files.readAllBytes(PROBES.resolve("probes.cu")));
      digest.update(Files.readAllBytes(HEADERS.resolve("element.cuh")));
      digest.update(Files.readAllBytes(HEADERS.resolve("gpu.cuh")));
      return HexFormat.of().formatHex(digest.digest());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }
}
