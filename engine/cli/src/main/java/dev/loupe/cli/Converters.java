package dev.loupe.cli;

import dev.loupe.Backend;
import dev.loupe.cli.run.CompareCommand;
import dev.loupe.cli.run.GenerateCommand;
import dev.loupe.cli.run.InterventionOptions;
import dev.loupe.corpus.Preparation;
import dev.loupe.export.HeadTable;
import dev.loupe.interpret.trace.Ablation;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.tensor.DType;
import java.util.Arrays;
import java.util.Locale;
import java.util.function.Function;
import java.util.stream.Collectors;
import picocli.CommandLine;
import picocli.CommandLine.TypeConversionException;

/** Reads the texts of arguments as values, and says what is wrong with those that can't be read. */
final class Converters {
  private Converters() {}

  /** Teaches a command line, and the commands that it has, to read them. */
  static void register(CommandLine commandLine) {
    String whole = "a whole number up to %d";
    CommandLine.ITypeConverter<Integer> ints =
        value(Integer::valueOf, whole.formatted(Integer.MAX_VALUE));
    CommandLine.ITypeConverter<Long> longs = value(Long::valueOf, whole.formatted(Long.MAX_VALUE));
    commandLine.registerConverter(int.class, ints).registerConverter(Integer.class, ints);
    commandLine.registerConverter(long.class, longs).registerConverter(Long.class, longs);
    commandLine.registerConverter(double.class, value(Double::valueOf, "a number"));
    commandLine.registerConverter(
        Backend.class,
        value(text -> Backend.valueOf(text.toUpperCase(Locale.ROOT)), "auto, cpu or cuda"));
    commandLine.registerConverter(
        Precision.class,
        value(text -> Precision.valueOf(text.toUpperCase(Locale.ROOT)), "f32, f16, bf16 or int8"));
    commandLine.registerConverter(
        Gemm.class,
        value(text -> Gemm.valueOf(text.toUpperCase(Locale.ROOT)), "auto, own or cublas"));
    commandLine.registerConverter(
        Activation.class,
        value(
            text -> Activation.named(text.toLowerCase(Locale.ROOT)),
            Arrays.stream(Activation.values())
                .map(Activation::configName)
                .collect(Collectors.joining(", "))));
    commandLine.registerConverter(
        DType.class, value(text -> DType.valueOf(text.toUpperCase(Locale.ROOT)), "f32 or f16"));
    commandLine.registerConverter(
        HeadTable.Column.class,
        value(
            text -> HeadTable.Column.valueOf(text.toUpperCase(Locale.ROOT)),
            Arrays.stream(HeadTable.Column.values())
                .map(HeadTable.Column::title)
                .collect(Collectors.joining(", "))));
    commandLine.registerConverter(
        GenerateCommand.Overflow.class,
        value(
            text -> GenerateCommand.Overflow.valueOf(text.toUpperCase(Locale.ROOT)),
            "error or slide"));
    commandLine.registerConverter(
        InterventionOptions.Ablation.class,
        value(
            text -> InterventionOptions.Ablation.valueOf(text.toUpperCase(Locale.ROOT)),
            "zero or mean"));
    commandLine.registerConverter(
        Ablation.class,
        value(text -> Ablation.valueOf(text.toUpperCase(Locale.ROOT)), "zero, mean or patch"));
    commandLine.registerConverter(
        CompareCommand.Masking.class,
        value(
            text -> CompareCommand.Masking.valueOf(text.toUpperCase(Locale.ROOT)),
            "causal or none"));
    commandLine.registerConverter(
        Preparation.Format.class,
        value(
            text -> Preparation.Format.valueOf(text.toUpperCase(Locale.ROOT)),
            "auto, text, lines, json or parquet"));
    commandLine.registerConverter(
        Preparation.LongTexts.class,
        value(
            text -> Preparation.LongTexts.valueOf(text.toUpperCase(Locale.ROOT)),
            "windows or refuse"));
  }

  private static <T> CommandLine.ITypeConverter<T> value(
      Function<String, T> reader, String expected) {
    return text -> {
      try {
        return reader.apply(text.strip());
      } catch (IllegalArgumentException e) { // NumberFormatException is one
        throw new TypeConversionException("'%s' is not %s".formatted(text, expected));
      }
    };
  }
}
