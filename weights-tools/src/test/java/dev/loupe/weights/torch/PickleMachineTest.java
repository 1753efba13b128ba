package dev.loupe.weights.torch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import dev.loupe.weights.PickleWriter;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.TorchWriter;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PickleMachineTest {
  private static PickleMachine machine(byte[] pickle) {
    InputFile file = new InputFile(Path.of("p.pkl"), MemorySegment.ofArray(pickle));
    return new PickleMachine(file, 0, pickle.length, new TorchObjects());
  }

  private static Object run(byte[] pickle) throws IOException {
    PickleMachine machine = machine(pickle);
    Object value = machine.run();
    assertEquals(pickle.length, machine.at());
    return value;
  }

  private void refused(byte[] pickle, Object... words) {
    List<Object> all = new ArrayList<>(List.of(words));
    all.addAll(List.of("p.pkl", "at byte"));
    ThreadMXBean thread = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long bytes = thread.getCurrentThreadAllocatedBytes();
    assertTimeout(Duration.ofSeconds(10), () -> Refusal.of(() -> run(pickle), all.toArray()));
    assertTrue(thread.getCurrentThreadAllocatedBytes() - bytes < 256 << 20);
  }

  private static byte[] pickle(Consumer<PickleWriter> body) {
    PickleWriter out = new PickleWriter(2);
    out.op(0x80).op(2);
    body.accept(out);
    return out.op('.').bytes();
  }

  private static byte[] latin1(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void readsPlainValues(int protocol) throws IOException {
    for (Object value :
        List.of(
            0L,
            255L,
            256L,
            65535L,
            65536L,
            -1L,
            -129L,
            1L << 40,
            Long.MIN_VALUE,
            true,
            false,
            0.1,
            "",
            "a",
            "é\n" + "x".repeat(300),
            List.of(),
            List.of(1L),
            List.of(1L, 2L),
            List.of(1L, "2", true),
            List.of(1L, 2L, 3L, List.of(4L)),
            Map.of(),
            Map.of("a", 1L, "b", Map.of("c", List.of())))) {
      assertEquals(value, run(PickleWriter.of(protocol, value)));
    }
    assertEquals(PickleMachine.NONE, run(PickleWriter.of(protocol, null)));
    assertEquals(List.of("x", "y"), run(PickleWriter.of(protocol, PickleWriter.list("x", "y"))));
    assertEquals(Map.of("7", "seven"), run(PickleWriter.of(protocol, Map.of(7, "seven"))));
  }

  /** As Python's pickletools shows them. */
  @Test
  void readsOtherSpellings() throws IOException {
    assertEquals(List.of(true, false, 300L), run(latin1("(I01\nI00\nI300\nt.")));
    assertEquals(-12345678901L, run(latin1("L-12345678901L\n.")));
    assertEquals(PickleMachine.NONE, run(latin1("L119547037146038801333356L\n.")));
    assertEquals(PickleMachine.NONE, run(latin1("\u0080\u0002\u008a\u0009123456789.")));
    assertEquals(-2L, run(latin1("\u008a\u0001\u00fe.")));
    assertEquals(255L, run(latin1("\u008a\u0002\u00ff\u0000.")));
    assertEquals(0L, run(latin1("\u008a\u0000.")));
    assertEquals(List.of("py2", "ab"), run(latin1("U\u0003py2T\u0002\u0000\u0000\u0000ab\u0086.")));
    assertEquals(List.of(1L), run(latin1("]q\u0000K\u0001a.")));
    assertEquals(Map.of("k", 1L), run(latin1("}U\u0001kK\u0001s.")));
    assertEquals(Map.of(), run(latin1("ccollections\nOrderedDict\n)\u0081.")));
    assertEquals(PickleMachine.NONE, run(latin1("cargparse\nNamespace\n)\u0081}b.")));
    assertEquals("é", run(latin1("\u008d\u0002\0\0\0\0\0\0\0\u00c3\u00a9.")));
  }

  @Test
  void refusesWhatNoWeightsNeed() {
    refused(latin1("cposix\nsystem\n(U\u0002idtR."), "posix.system", "byte 0");
    refused(latin1("\u0080\u0004\u008c\u0008builtins\u008c\u0004eval\u0093."), "builtins.eval");
    refused(latin1("(iposix\nsystem\n."), "opcode 0x69");
    refused(latin1("\u0080\u0006."), "protocol 6");
    refused(latin1("\u0080\u0002\u0082\u0001."), "opcode 0x82"); // extension registry
    refused(latin1("cposix\nsystem\n)\u0081."), "posix.system"); // NEWOBJ
    refused(latin1("ctorch\nFloatStorage\n)R."), "torch.FloatStorage");
    refused(latin1("ctorch\nComplexStorage\n."), "torch.ComplexStorage");
    refused(latin1("ctorch._utils\n_rebuild_tensor_v2\n)R."), "storage");
    refused(latin1("ctorch._utils\n_rebuild_parameter\n)R."), "parameter");
    refused(latin1("ccollections\nOrderedDict\n]]a\u0085R."), "OrderedDict");
    refused(latin1("K\u0001)R."), "can't be called");
    refused(latin1("c" + "x".repeat(300)), "200");
  }

  @Test
  void refusesNonsense() {
    refused(latin1("."), "no"); // STOP with nothing
    refused(latin1("(."), "none");
    refused(latin1("t."), "never began");
    refused(latin1("K\u0001\u0086."), "none");
    refused(
        latin1("K\u0001(\u0085."),
        "values where there are none"); // a tuple must not reach below a mark
    refused(latin1("h\u0005."), "memo 5");
    refused(latin1("K\u0001K\u0001a."), "no list");
    refused(latin1(")K\u0001a."), "no list"); // a tuple is none
    refused(latin1("K\u0001K\u0001K\u0002s."), "no dict");
    refused(latin1("}(K\u0001u."), "without a value");
    refused(latin1("})K\u0001s."), "key");
    refused(latin1("X\u00ff\u00ff\u00ff\u007f."), "2147483647");
    refused(
        latin1("\u008d\u00ff\u00ff\u00ff\u00ff\u00ff\u00ff\u00ff\u00ff."), "18446744073709551615");
    refused(latin1("K"), "calls for 1 more bytes and has 0");
    refused(latin1("K\u0001Q."), "tuple");
    refused(latin1("(U\u0001xtQ."), "no storage");
  }

  @Test
  void refusesImpossibleStorages() {
    refused(pickle(out -> out.value(TorchWriter.storage("FloatStorage", "0", -1))), "no storage");
    refused(
        pickle(out -> out.value(TorchWriter.storage("FloatStorage", "0", 1L << 61))), "no storage");
    refused(
        pickle(
            out ->
                out.value(TorchWriter.storage("FloatStorage", "0", 1))
                    .value(TorchWriter.storage("HalfStorage", "0", 1))),
        "storage 0 both as 1 F32 and as 1 F16");
    PickleWriter.Pickled storage = TorchWriter.storage("FloatStorage", "0", 1);
    refused(
        pickle(out -> out.value(TorchWriter.rebuild(storage, 0, List.of("x"), List.of(1)))),
        "no naturals");
    refused(
        pickle(out -> out.value(TorchWriter.rebuild(storage, 0, List.of(-1), List.of(1)))),
        "no naturals");
    refused(
        pickle(
            out ->
                out.value(TorchWriter.rebuild(storage, 0, Collections.nCopies(17, 1), List.of(1)))),
        "rank 17");
  }

  /** Each would take long, or much, if it were followed to its end. */
  @Test
  void refusesBombs() {
    byte[] deep = "(".repeat(2_000_000).getBytes(StandardCharsets.US_ASCII);
    refused(deep, "steps");
    refused("]".repeat(2_000_000).getBytes(StandardCharsets.US_ASCII), "steps");
    refused("}".repeat(2_000_000).getBytes(StandardCharsets.US_ASCII), "steps");
    refused(latin1("}K\u0001Ns".repeat(600_000)), "steps");
    StringBuilder memo = new StringBuilder();
    for (int i = 0; i < 300_000; i++) {
      memo.append("}r").append((char) (i & 255)).append((char) (i >> 8 & 255));
      memo.append((char) (i >> 16)).append('\0');
    }
    refused(latin1(memo.toString()), "steps");
    refused(latin1("X\u0000\u0000\u0000\u0002" + "é".repeat(32 << 20)), "cut short");
    refused(latin1("]q\u0000" + "h\u0000a".repeat(1_000_000)), "steps"); // a list in itself
    // tuples of twice the last one: 2^100000 elements, were they counted
    refused(latin1(")q\u0000" + "h\u0000h\u0000\u0086q\u0000".repeat(400_000)), "steps");
  }

  @Test
  void cyclesAreNoTrouble() throws IOException {
    // d = {}; d["self"] = d, and a list of 100,000 levels
    Object value = run(latin1("}q\u0000U\u0004selfh\u0000s."));
    Map<String, Object> dict = TorchFile.dict(value).orElseThrow();
    assertEquals(1, dict.size());
    run(latin1("]".repeat(100_000) + "a".repeat(99_999) + "."));
  }

  /** Programs of sound opcodes in no order: more than half run on for ten steps and more. */
  @Test
  void randomPrograms() throws IOException {
    String opcodes =
        "NKMJIUX(()tt]e}uasqhhhrjcQRb.." + "\u0085\u0086\u0087\u0088\u0089\u008a\u008c\u0093\u0094";
    SplittableRandom random = new SplittableRandom(26);
    int finished = 0;
    for (int round = 0; round < 20_000; round++) {
      StringBuilder program = new StringBuilder("K\u0001(}]ccollections\nOrderedDict\n)");
      for (int i = random.nextInt(60); i > 0; i--) {
        char opcode = opcodes.charAt(random.nextInt(opcodes.length()));
        program.append(opcode);
        switch (opcode) {
          case 'c' ->
              program.append(random.nextBoolean() ? "torch\nHalfStorage\n" : "numpy\ndtype\n");
          case 'I' -> program.append("12\n");
          case 'K', 'q', 'h' -> program.append((char) random.nextInt(4));
          case 'M' -> program.append("ab");
          case 'J', 'r', 'j' -> program.append((char) random.nextInt(4)).append("\0\0\0");
          case 'U', '\u008c', '\u008a' -> program.append("\u0001x");
          case 'X' -> program.append("\u0002\0\0\0xy");
          default -> {}
        }
      }
      try {
        machine(latin1(program + ".")).run();
        finished++;
      } catch (CheckpointException e) {
        Refusal.assertOneSentence(String.valueOf(e.getMessage()));
      }
    }
    assertTrue(finished > 1000, "finished " + finished);
  }
}
