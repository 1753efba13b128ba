@echo off
rem Loupe with the Java runtime that lies beside it in an unpacked archive.
setlocal
set "home=%~dp0.."
for %%j in ("%home%\lib\loupe-cli-*.jar") do set "jar=%%j"
"%home%\runtime\bin\java" --add-modules jdk.incubator.vector --enable-native-access=ALL-UNNAMED ^
  -XX:+UseSerialGC -XX:MaxRAMPercentage=75 -Djava.awt.headless=true "-Dloupe.home=%home%" ^
  -cp "%jar%" dev.loupe.cli.Main %*
exit /b %errorlevel%
